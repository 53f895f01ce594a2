"""Ways out of wrong options, rows and forms of a query: played by load(), by the sink, and by its tasks."""

import sys
from types import SimpleNamespace

from pyspark.sql.types import DoubleType, StructType

from coordinator.protocol import errors, option_errors
from pyspark_sharegroup import DefaultSource
from share_sink import errors as sink_errors
from share_sink import sink
from share_sink.archive import archive_dataset
from share_sink.archive.batches import check_archive
from share_sink.columns import Columns
from share_sink.foreach_batch import sink_options
from share_sink.redrive.conditions import conditions
from share_sink.rows import outcome_rows, rejected_rows
from share_source import errors as source_errors
from share_source.arrow_schema import spark_schema
from share_source.executor.reader_choice import is_native
from tests.support.archives import batch, rejected
from tests.support.read_tasks import reading_with
from tests.support.sink_rows import COLUMNS, PLAIN, REQUIRED, SINK, digest_of, row, schema
from tests.support.sink_rows import batch as sink_batch
from tests.ways_out.way import way_out

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}
VIEW = {"kafka.bootstrap.servers": "localhost:9092", "view": "offsets"}
DLQ = "errors.deadletterqueue.topic.name"


def corrected(error, remedy, wrong, right):
    """The way out of options of load(), as ``NAME=VALUE NAME=VALUE``; a name alone removes the option. ``wrong`` ones
    are refused, ``right`` ones are taken."""

    def loaded(scene, text):
        options = [option.partition("=") for option in text.split()]
        scene.place.source({name: value if is_set else None for name, is_set, value in options})

    def play(scene):
        with scene.refused():
            loaded(scene, wrong)
        loaded(scene, right)

    way_out(error, remedy)(play)


OF_THREE = "set exactly one of subscribe, subscribePattern and assign"
OTHER_DLQ = "Name another dead letter topic, or leave orders out of the subscription"
corrected(
    option_errors.UnknownOption,
    "the nearest known one is maxOffsetsPerTrigger",
    "maxOffsetPerTrigger=5",
    "maxOffsetsPerTrigger=5",
)
corrected(option_errors.MissingOption, "kafka.group.id is missing", "kafka.group.id", "kafka.group.id=billing")
corrected(
    option_errors.InvalidOption,
    'or JSON as in {"orders":{"0":23,"1":-2}}',
    "startingOffsets=newest",
    'startingOffsets={"orders":{"0":23,"1":-2}} subscribe assign={"orders":[0,1]}',
)
corrected(
    option_errors.UnknownKafkaOption,
    "the nearest known one is kafka.fetch.min.bytes",
    "kafka.fetch.min.byte=1",
    "kafka.fetch.min.bytes=1",
)
corrected(
    errors.InvalidKafkaConfig,
    "receive.message.max.bytes must be >= fetch.max.bytes + 512",
    "kafka.receive.message.max.bytes=2000",
    "kafka.receive.message.max.bytes=2000 kafka.fetch.max.bytes=1000 kafka.message.max.bytes=1000",
)
corrected(
    errors.UnknownConfig,
    "the nearest known one is share.session.timeout.ms",
    "share.sesion.timeout.ms=45000",
    "share.session.timeout.ms=45000",
)
corrected(
    errors.ConfigTypeMismatch,
    "is not a whole number of milliseconds",
    "share.session.timeout.ms=45_000",
    "share.session.timeout.ms=45000",
)
corrected(
    errors.ConfigOutOfBounds,
    "it must be kafka, sqlite or sqlite:PATH",
    "share.state.store=sqlite://state.db",
    "share.state.store=sqlite:/state.db",
)
corrected(errors.ConfigConflict, "name it, or remove this", "share.coordinator.token.file=token", "")
corrected(source_errors.NoSubscription, OF_THREE, "subscribe", "")
corrected(source_errors.SeveralSubscriptions, OF_THREE, "subscribePattern=orders", "subscribe subscribePattern=orders")
corrected(
    errors.InvalidGroupId,
    "A group id has at most 249 characters",
    f"kafka.group.id={'g' * 250}",
    f"kafka.group.id={'g' * 249}",
)
corrected(
    errors.InvalidTopicPattern,
    "write alternatives, as in orders|payments-.*, or subscribe to the topics by name",
    "subscribe subscribePattern=(?!x)orders",
    "subscribe subscribePattern=orders|payments-.*",
)
corrected(
    errors.InvalidStartingOffsets,
    "for each partition an offset (-2 is the earliest, -1 the latest)",
    'startingOffsets={"orders":{"0":1,"9":5}}',
    'startingOffsets={"orders":{"0":1,"1":-2,"2":-1,"3":5}}',
)
corrected(
    errors.TopicKept, "Leave it out of the topics to read", "subscribe=orders,share-group-state", "subscribe=orders"
)
corrected(
    errors.UnknownPartition,
    "it has 4, numbered from 0. Name partitions that the topic has",
    'subscribe assign={"orders":[4]}',
    'subscribe assign={"orders":[3]}',
)
corrected(errors.DeadLetterTopicSubscribed, OTHER_DLQ, f"{DLQ}=orders", f"{DLQ}=payments subscribe=orders")
corrected(
    errors.TopicNotWritten,
    "Name another topic, in errors.deadletterqueue",
    f"{DLQ}=share-group-state",
    f"{DLQ}=payments",
)


@way_out(errors.UnknownTopic, "Create it, or correct its name")
def a_topic_that_is_missing(scene):
    with scene.refused():
        scene.place.source({"subscribe": "later"})
    scene.broker.create_topic("later")
    scene.place.source({"subscribe": "later"})


@way_out(errors.DeadLetterTopicMissing, "Create it (kafka-topics.sh --create", "auto.create.topics.enable=true")
def a_dead_letter_topic_that_is_missing(scene):
    with scene.refused():
        scene.place.source({DLQ: "dlq.later"})
    scene.place.source({DLQ: "dlq.later", "errors.deadletterqueue.auto.create.topics.enable": "true"})
    scene.broker.create_topic("dlq.later")
    scene.place.source({DLQ: "dlq.later"})


@way_out(option_errors.RefusedOption, "Set it on writeStream")
def an_option_of_the_other_side(scene):
    with scene.refused():
        scene.place.source({"onStaleReceipt": "fail"})
    scene.place.sink({"onStaleReceipt": "fail"})


@way_out(sink_errors.NoSinkOptions, "Pass options to acknowledge()", "as spark.sharegroup.kafka.group.id")
def acknowledge_without_options(scene):
    needed = {"kafka.bootstrap.servers": scene.place.bootstrap}
    with scene.refused():
        sink_options({}, needed)
    sink_options({}, {**needed, "kafka.group.id": "billing"})
    sink_options({"spark.sharegroup.kafka.group.id": "billing"}, needed)


@way_out(sink_errors.OverwriteRefused, 'use mode("append") for a batch')
def a_sink_that_overwrites(scene):
    with scene.refused():
        scene.place.sink({}, schema(REQUIRED), overwrite=True)
    scene.patch.setattr(sink, "coordinator_of", lambda options: SimpleNamespace(call=lambda request: PLAIN))
    assert scene.place.sink({}, schema(REQUIRED)).opened == PLAIN


# --- forms


@way_out(source_errors.SchemaRefused, "Remove .schema(...)")
def a_schema_of_ones_own(scene):
    with scene.refused():
        DefaultSource(OPTIONS).streamReader(StructType().add("value", "string")).initialOffset()
    DefaultSource(OPTIONS).streamReader(scene.place.source({}))


@way_out(source_errors.BatchReadRefused, "Use spark.readStream", 'name the view records: .option("view", "records")')
def a_batch_read(scene):
    with scene.refused():
        DefaultSource(OPTIONS).reader(spark_schema())
    DefaultSource(OPTIONS).streamReader(spark_schema())
    view = DefaultSource(VIEW)
    view.reader(view.schema())


@way_out(option_errors.TableRefused, 'Read it with spark.readStream.format("sharegroup")')
def a_sql_table(scene):
    with scene.refused():
        DefaultSource({"provider": "sharegroup", "owner": "me"}).schema()
    DefaultSource(OPTIONS).streamReader(spark_schema())


@way_out(source_errors.ViewIsNoStream, "use spark.read instead of spark.readStream, or remove the option view")
def a_view_as_a_stream(scene):
    view = DefaultSource(VIEW)
    with scene.refused():
        view.streamReader(StructType()).initialOffset()
    view.reader(view.schema())
    DefaultSource(OPTIONS).streamReader(spark_schema())


@way_out(source_errors.UnknownReader, "set it to native, python or auto")
def a_mistyped_reader(scene):
    with reading_with("natve"), scene.refused():
        is_native()
    with reading_with("python"):
        assert not is_native()


@way_out(source_errors.NativeReaderMissing, "or set SHAREGROUP_READER=auto")
def a_reader_that_was_not_compiled(scene):
    scene.patch.setitem(sys.modules, "share_source.executor.native._drain", None)
    with reading_with("native"), scene.refused():
        is_native()
    with reading_with("auto"):
        assert not is_native()


# --- rows


def rewritten(error, remedy, wrong, right):
    """The way out of a row: with the ``wrong`` columns it is refused, with the ``right`` ones it is taken."""

    def play(scene):
        with scene.refused():
            scene.place.write(**wrong)
        scene.place.write(**right)

    way_out(error, remedy)(play)


RELEASED = {"acknowledgement": "release"}
rewritten(
    sink_errors.UnknownOutcome,
    "it has to be accept, release, reject, defer or null",
    {"acknowledgement": "ok"},
    RELEASED,
)
rewritten(
    sink_errors.RenewRefused, "Use release to have a record delivered again", {"acknowledgement": "renew"}, RELEASED
)
rewritten(
    sink_errors.InvalidReleaseDelay,
    "a delay is a number of milliseconds from 0",
    {**RELEASED, "releaseDelayMs": -1},
    {**RELEASED, "releaseDelayMs": 1_000},
)
rewritten(sink_errors.IncompleteReceipt, "Drop such rows before the sink", {"offset": None}, {})
rewritten(
    sink_errors.RowsOfAnotherGroup,
    "Set the sink's kafka.group.id and kafka.bootstrap.servers to those of the source which read the rows",
    {"receipt": digest_of(group_id="shipping")},
    {"receipt": digest_of(group_id="billing")},
)


@way_out(sink_errors.NullHeader, "leave nulls out of the array")
def a_null_among_the_headers(scene):
    def rejected_with(headers):
        rows = sink_batch(row(2, "reject", headers=headers))
        return rejected_rows(rows, COLUMNS, outcome_rows(rows, SINK))

    with scene.refused():
        rejected_with([{"key": "a", "value": b"1"}, None])
    rejected_with([{"key": "a", "value": b"1"}, {"key": "b", "value": None}])


@way_out(sink_errors.MissingColumn, "Keep the column receipt as it came from the source")
def a_select_without_the_receipt(scene):
    with scene.refused():
        Columns.of(schema({name: kind for name, kind in REQUIRED.items() if name != "receipt"}))
    Columns.of(schema(REQUIRED))


@way_out(sink_errors.WrongColumn, "has to be int", "Keep it as it came from the source")
def a_partition_as_a_double(scene):
    with scene.refused():
        Columns.of(schema({**REQUIRED, "partition": DoubleType()}))
    Columns.of(schema(REQUIRED))


@way_out(sink_errors.ArchiveNotWritable, "Set archive.path to a folder in which")
def an_archive_below_a_file(scene):
    with scene.refused():
        check_archive(scene.place.file("file") + "/archive")
    check_archive(str(scene.place.folder / "archive"))


@way_out(sink_errors.ArchiveNotFound, "Name the folder that the sink's archive.path names")
def an_archive_that_is_elsewhere(scene):
    path = str(scene.place.folder / "archive")
    batch(path, 1, rejected("orders", 7))
    with scene.refused():
        archive_dataset(f"{path}-mistyped")
    assert archive_dataset(path).count_rows() == 1


@way_out(sink_errors.InvalidCondition, "Write NAME=VALUE or NAME~=REGEX")
def a_condition_without_a_value(scene):
    with scene.refused():
        conditions(["tenant"])
    conditions(["tenant=a", "message~=time.*"])
