"""Errors whose way out another test walks, with a real broker, Spark or several hosts; and those that nobody can
walk, each with the reason."""

from coordinator.core.record_codec import UnreadableRecord
from coordinator.protocol.errors import (
    AdminClosed,
    BrokerRefused,
    BrokerSecurityFailed,
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    DeadLetterTopicNotAuthorized,
    DiskFull,
    GroupStateTooNew,
    GroupStateTooOld,
    GroupTakenOver,
    InternalError,
    InvalidRecordState,
    InvalidRequest,
    NoCoordinatorHere,
    NotCoordinator,
    OutageTooLong,
    RemoteError,
    StateBatchUnreadable,
    StateRecordUnreadable,
    StateTopicMissing,
    StateTopicNotAuthorized,
    StateTopicUnfit,
    StateTransactionOpen,
    TopicNotAuthorized,
    TransactionsMissing,
)
from coordinator.protocol.host_errors import (
    GroupOfAnotherVersion,
    HostTopicNotAuthorized,
    HostTopicUnfit,
    OwnerMissing,
    RequestTooLate,
)
from coordinator.service.stores.kafka.ownership import OwnedElsewhere
from share_sink.errors import (
    ArchiveFormatUnknown,
    ArchiveRowsMissing,
    DeadLettersNotRead,
    OutcomesMayChange,
    RedriveChanged,
    RedriveIntoItself,
    RedriveStopped,
    RedriveTargetMissing,
)
from share_source.errors import (
    CheckpointChanged,
    ExecutorsUnfit,
    LogNotTold,
    ReadDenied,
    ReadFailed,
    ReadTimeout,
    RecordsDamaged,
    RecordsGone,
)
from sharegroup import UsedAfterFork
from sharegroup.cluster_questions import LeaderNotReachable, TokenEndpointNotReachable
from sharegroup.testing.errors import NotDone, OutcomesNotKnown, RecordsNotKept
from sharegroup.web.errors import Away, BadRequest

BROKER, UNIT, SPARK = "tests/integration/", "tests/unit/", "tests/spark/"

WALKED = {
    AdminClosed: UNIT + "client/test_admin_arguments.py::test_a_closed_admin_is_named",
    BrokerSecurityFailed: BROKER
    + "test_rotated_credentials.py::test_after_a_rotation_a_query_with_the_new_password_keeps_its_batch",
    CheckpointChanged: UNIT
    + "share_source/test_kept_query.py::test_a_query_with_another_checkpoint_is_stopped_and_refused",
    DeadLetterTopicNotAuthorized: BROKER
    + "test_dead_letters.py::test_dead_letters_that_the_principal_may_not_write_any_more_are_held",
    DiskFull: UNIT
    + "service/test_admin_actions.py::test_an_action_whose_beginning_can_not_be_written_is_not_carried_out",
    GroupOfAnotherVersion: BROKER
    + "test_mixed_versions.py::test_a_later_version_s_group_is_refused_until_its_owner_is_gone",
    HostTopicNotAuthorized: BROKER
    + "test_hosts_acls.py::test_missing_topics_are_named_with_the_command_to_create_them",
    HostTopicUnfit: BROKER + "test_hosts_acls.py::test_an_unfit_topic_is_configured_or_named_with_the_command",
    NoCoordinatorHere: BROKER + "test_sandboxes.py::test_a_sandboxed_consumer_works_with_a_standalone_coordinator",
    OutcomesMayChange: SPARK + "test_decide.py::test_changing_outcomes_are_refused_and_others_are_not",
    RecordsDamaged: BROKER
    + "readers/test_damaged_batches.py::test_a_query_gives_up_a_damaged_batch_and_delivers_all_others",
    RecordsGone: BROKER
    + "readers/test_losses.py::test_without_fail_on_data_loss_a_loss_is_logged_and_reading_continues",
    RedriveStopped: BROKER + "test_redrive.py::test_a_deleted_topic_stops_a_redrive_which_reports_the_sent_records",
    StateTopicMissing: BROKER
    + "test_state_topic_gone.py::test_a_coordinator_on_demand_uses_a_new_topic_and_refuses_old_checkpoints",
    StateTopicNotAuthorized: BROKER
    + "test_state_topic_acls.py::test_each_missing_acl_is_named_and_all_acls_together_suffice",
    StateTransactionOpen: BROKER
    + "test_foreign_writers.py::test_an_open_transaction_is_named_with_the_command_that_aborts_it",
    TransactionsMissing: BROKER + "test_lacking_brokers.py::test_missing_transactions_are_named_and_a_state_file_works",
    UsedAfterFork: BROKER + "test_environments.py::test_a_child_forked_beside_open_connections_is_refused_by_name",
}
"""The test that does what the error's sentence says, and is past the error."""

BUG = "It is a mistake of ours: its way out is a report."
PASSES = "It passes by itself: the client asks again."
VERSION = "Its way out is to run the version that wrote the data, which this tree does not have."
REASONS = {
    ArchiveFormatUnknown: VERSION,
    ArchiveRowsMissing: "Its way out is a file system that all hosts reach, and a test has one host.",
    Away: "It passes by itself when the brokers answer again: tests/unit/web/test_outages.py.",
    BadRequest: "Its sentence is of one form or address, and the page makes neither by itself.",
    BrokerRefused: "Its sentence is the broker's own reason.",
    CoordinatorNotAvailable: PASSES,
    CoordinatorNotStarted: "Its way out is in the coordinator's log, which it names.",
    DeadLettersNotRead: "Its way out is an ACL or a broker that answers, which each other test of a redrive has.",
    ExecutorsUnfit: "Its way out is an installation on executors.",
    GroupStateTooNew: VERSION,
    GroupStateTooOld: VERSION,
    GroupTakenOver: VERSION,
    InternalError: BUG,
    InvalidRecordState: "It is the base of errors that have plays; by itself it is a mistake of ours.",
    InvalidRequest: "Its sentence is of one argument; as the answer to a program's client it is a mistake of ours.",
    LeaderNotReachable: "Its way out is a network, which a test with one host does not have.",
    LogNotTold: "Its way out is to remove a setting of Spark 4.0, with which every other test of that Spark runs.",
    NotCoordinator: PASSES,
    NotDone: "Its way out is a correct program or more time, which each test of docs/do/test-your-query.md is.",
    OutageTooLong: "Its way out is brokers that answer again: the query that waits longer is past it in "
    "tests/integration/test_broker_outage.py.",
    OutcomesNotKnown: "Its way out is to call outcomes() sooner, as each other test of sharegroup.testing does.",
    OwnedElsewhere: PASSES,
    OwnerMissing: "Its way out is another host that may own groups: tests/integration/test_hosts_acls.py has two.",
    ReadDenied: "Its way out is an ACL, with which each other test of a guarded broker reads.",
    ReadFailed: "Its sentence is the client's own reason, and its way out is to remove that.",
    ReadTimeout: "Its way out is a broker that answers: tests/integration/readers/test_losses.py heals the connection.",
    RecordsNotKept: "Its way out is fewer or smaller records, which each other test of sharegroup.testing has.",
    RedriveChanged: "Its way out is another dry run, which each other test of a redrive with as_shown is.",
    RedriveIntoItself: "Its way out is another topic, or none: each other test of a redrive names one or the other.",
    RedriveTargetMissing: "Its way out, to leave dead letters out, is the one of RedriveStopped's test.",
    RemoteError: BUG,
    RequestTooLate: PASSES,
    StateBatchUnreadable: "Its way out is another replica, and the tests' broker is the only one.",
    StateRecordUnreadable: "Its way out is a copy of the state, which no test of a store takes.",
    StateTopicUnfit: "Its way out is the topic's configuration, which state topics of all other tests have.",
    TokenEndpointNotReachable: "Its way out is a network, which a test with one host does not have.",
    TopicNotAuthorized: "Its way out is an ACL, with which each other test of a guarded broker reads.",
    UnreadableRecord: VERSION,
}
"""Why nobody can walk the way out of the error, in a sentence."""
