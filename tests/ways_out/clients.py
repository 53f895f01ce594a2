"""Ways out for a ShareConsumer's program, for tests of programs, and for people at the page."""

import contextlib
import importlib.util
import socket
from types import SimpleNamespace

from coordinator.protocol.rights import Caller, Right
from share_consumer import errors as consumer_errors
from sharegroup import AcknowledgeType, ShareConsumer
from sharegroup.testing import Record, broker, wait_until_done
from sharegroup.testing.errors import NotDone, NoTestBroker, UnusableRecord, UnusableTopicName
from sharegroup.testing.records import checked
from sharegroup.web import errors as web_errors
from sharegroup.web.command import check_installed
from sharegroup.web.server import Address, Server
from sharegroup.web.sessions import MOST_STREAMS_OF_ONE, Sessions, Visitor
from tests.support.share_members import CONFIG, Stubs
from tests.support.standalone import Certificates
from tests.support.web_site import LOOKER, Page
from tests.ways_out.way import way_out

EXPLICIT = {**CONFIG, "share.acknowledgement.mode": "explicit"}


def polled(records, **config):
    """A consumer, the stubs of its coordinator and broker, and the records of its first poll."""
    consumer = ShareConsumer({**CONFIG, **config})
    consumer.subscribe(["orders"])
    stubs = Stubs(consumer)
    stubs.answer(records)
    return consumer, stubs, list(consumer.poll())


def in_explicit_mode(records):
    return polled(records, **EXPLICIT)


@way_out(consumer_errors.SignalInImplicitMode, "set share.acknowledgement.mode=explicit")
def a_signal_in_implicit_mode(scene):
    consumer, _, (message,) = polled(1)
    with scene.refused():
        consumer.mark_in_progress(message)
    consumer, _, (message,) = in_explicit_mode(1)
    consumer.mark_in_progress(message)


@way_out(consumer_errors.NoteInImplicitMode, "set share.acknowledgement.mode=explicit")
def a_reason_in_implicit_mode(scene):
    consumer, _, (message,) = polled(1)
    with scene.refused():
        consumer.acknowledge(message, AcknowledgeType.REJECT, reason="broken")
    consumer, _, (message,) = in_explicit_mode(1)
    consumer.acknowledge(message, AcknowledgeType.REJECT, reason="broken")


@way_out(consumer_errors.RecordHasOutcome, "Mark a record before it is acknowledged")
def a_signal_after_the_outcome(scene):
    consumer, _, (first, second) = in_explicit_mode(2)
    consumer.acknowledge(first)
    with scene.refused():
        consumer.mark_in_progress(first)
    consumer.mark_in_progress(second)
    consumer.acknowledge(second)


@way_out(consumer_errors.RecordNotInFlight, "Its outcome was sent")
def a_signal_after_the_commit(scene):
    consumer, _, (first, second) = in_explicit_mode(2)
    consumer.acknowledge(first)
    consumer.commit_sync()
    with scene.refused():
        consumer.mark_in_progress(first)
    consumer.mark_in_progress(second)


@way_out(consumer_errors.WakeupException, "Records that were on their way come with the next poll()")
def a_poll_that_another_thread_ends(scene):
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    stubs = Stubs(consumer)
    consumer.wakeup()
    with scene.refused():
        consumer.poll(60)
    stubs.answer(3)
    assert len(consumer.poll(60)) == 3


# --- sharegroup.testing


@way_out(UnusableTopicName, "use a str of letters, digits, dots, underscores and hyphens")
def a_topic_with_a_blank(scene):
    with scene.refused():
        checked({"new orders": ["a"]})
    assert checked({"new-orders": ["a"]})


@way_out(UnusableRecord, "a record is str, bytes, None, or a sharegroup.testing.Record")
def a_record_that_is_a_dict(scene):
    with scene.refused():
        checked({"orders": [{"n": 1}]})
    assert checked({"orders": ["{}", b"{}", None, Record("{}")]})


@way_out(NoTestBroker, "Call wait_until_done() within the block `with broker() as address:`")
def a_wait_without_a_broker(scene):
    with scene.refused():
        wait_until_done("billing")
    with broker(), contextlib.suppress(NotDone):
        wait_until_done("billing", timeout_s=0)


# --- the page


def page(scene):
    found = Page(scene.place.folder / "page.db")
    scene.ending.callback(found.close)
    found.running.join(starting_offsets="earliest")
    return found


@way_out(web_errors.NotSignedIn, "sign in with a token")
def a_request_without_a_session(scene):
    found = page(scene)
    scene.shown(found.browser().post("/logout", {}).text)
    assert found.browser(LOOKER).post("/logout", {}).status_code == 303


@way_out(web_errors.Forged, "Load the page anew, and try again")
def a_form_of_an_earlier_session(scene):
    browser = page(scene).browser(LOOKER)
    scene.shown(browser.post("/logout", {}, csrf="x" * 43).text)
    assert browser.post("/logout", {}, csrf=browser.secret()).status_code == 303


@way_out(web_errors.TooManyOpen, "Close some, or wait a while")
def too_many_open_pages(scene):
    opened = Sessions()
    person = Visitor(caller=Caller(frozenset({Right.READ}), "lo"), admin=SimpleNamespace(close=lambda: None))
    found = opened.find(opened.begin(person, LOOKER))
    for _ in range(MOST_STREAMS_OF_ONE):
        opened.open_stream(found)
    with scene.refused():
        opened.open_stream(found)
    opened.close_stream(found)
    opened.open_stream(found)


@way_out(web_errors.WebTlsRequired, "name --tls-certificate and --tls-key, or listen on loopback (127.0.0.1) only")
def a_page_for_other_hosts_without_tls(scene):
    with scene.refused():
        Address(host="0.0.0.0", port=0).check()
    files = Certificates(scene.place.folder)
    Address(host="0.0.0.0", port=0, certificate=str(files.certificate), key=str(files.key)).check()
    Address(host="127.0.0.1", port=0).check()


@way_out(web_errors.WebNotAvailable, "in use")
def a_page_whose_port_is_taken(scene):
    app = page(scene).app
    with socket.create_server(("127.0.0.1", 0)) as taken, scene.refused():
        Server(app, Address(host="127.0.0.1", port=taken.getsockname()[1]))
    Server(app, Address(host="127.0.0.1", port=0)).close()


@way_out(web_errors.WebNotInstalled, "pip install 'sharegroup[web]' brings it")
def a_page_without_its_packages(scene):
    find = importlib.util.find_spec
    with scene.patch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
        with scene.refused():
            check_installed()
    check_installed()
