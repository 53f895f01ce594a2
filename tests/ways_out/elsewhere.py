"""Errors whose way out another test walks, with a real broker, Spark or several hosts; and those that nobody can
walk, each with the reason."""

from coordinator.core.record_codec import UnreadableRecord
from coordinator.protocol import errors, host_errors
from coordinator.protocol.host_errors import OwnedElsewhere
from share_sink import errors as sink_errors
from share_source import errors as source_errors
from sharegroup import UsedAfterFork
from sharegroup.check.cluster import LeaderNotReachable, TokenEndpointNotReachable
from sharegroup.testing.errors import NotDone, OutcomesNotKnown, RecordsNotKept
from sharegroup.web.errors import Away, BadRequest

BROKER, UNIT, SPARK = "tests/integration/", "tests/unit/", "tests/spark/"

WALKED = {
    errors.AdminClosed: UNIT + "client/test_admin_arguments.py::test_a_closed_admin_is_named",
    errors.BrokerSecurityFailed: BROKER
    + "test_rotated_credentials.py::test_after_a_rotation_a_query_with_the_new_password_keeps_its_batch",
    source_errors.CheckpointChanged: UNIT
    + "share_source/test_kept_query.py::test_a_query_with_another_checkpoint_is_stopped_and_refused",
    errors.DeadLetterTopicNotAuthorized: BROKER
    + "test_dead_letters.py::test_dead_letters_that_the_principal_may_not_write_any_more_are_held",
    errors.DiskFull: UNIT
    + "service/test_admin_actions.py::test_an_action_whose_beginning_can_not_be_written_is_not_carried_out",
    host_errors.GroupOfAnotherVersion: BROKER
    + "test_mixed_versions.py::test_a_later_version_s_group_is_refused_until_its_owner_is_gone",
    host_errors.HostTopicNotAuthorized: BROKER
    + "test_hosts_acls.py::test_missing_topics_are_named_with_the_command_to_create_them",
    host_errors.HostTopicUnfit: BROKER
    + "test_hosts_acls.py::test_an_unfit_topic_is_configured_or_named_with_the_command",
    errors.NoCoordinatorHere: BROKER
    + "test_sandboxes.py::test_a_sandboxed_consumer_works_with_a_standalone_coordinator",
    sink_errors.OutcomesMayChange: SPARK + "test_decide.py::test_changing_outcomes_are_refused_and_others_are_not",
    source_errors.RecordsDamaged: BROKER
    + "readers/test_damaged_batches.py::test_a_query_gives_up_a_damaged_batch_and_delivers_all_others",
    source_errors.RecordsGone: BROKER
    + "readers/test_losses.py::test_without_fail_on_data_loss_a_loss_is_logged_and_reading_continues",
    sink_errors.PsycopgMissing: SPARK + "test_table_writes.py::test_what_no_table_can_take_is_refused_by_name",
    sink_errors.QueryNotKnown: SPARK + "test_table_writes.py::test_a_table_of_spark_has_a_batch_once",
    sink_errors.RecordTwice: SPARK + "test_table_writes.py::test_a_table_of_spark_has_a_batch_once",
    sink_errors.TableNotOpened: SPARK + "test_table_writes.py::test_a_table_of_spark_has_a_batch_once",
    sink_errors.TableUnfit: SPARK + "test_table_writes.py::test_postgresql_has_a_row_of_each_accepted_record",
    sink_errors.BatchAppendedTwice: SPARK + "test_table_writes.py::test_a_table_of_spark_has_a_batch_once",
    sink_errors.RedriveStopped: BROKER
    + "test_redrive.py::test_a_deleted_topic_stops_a_redrive_which_reports_the_sent_records",
    errors.StateTopicMissing: BROKER
    + "test_state_topic_gone.py::test_a_coordinator_on_demand_uses_a_new_topic_and_refuses_old_checkpoints",
    errors.StateTopicNotAuthorized: BROKER
    + "test_state_topic_acls.py::test_each_missing_acl_is_named_and_all_acls_together_suffice",
    errors.StateTransactionOpen: BROKER
    + "test_foreign_writers.py::test_an_open_transaction_is_named_with_the_command_that_aborts_it",
    errors.TransactionsMissing: BROKER
    + "test_lacking_brokers.py::test_missing_transactions_are_named_and_a_state_file_works",
    UsedAfterFork: BROKER + "test_environments.py::test_a_child_forked_beside_open_connections_is_refused_by_name",
}
"""The test that does what the error's sentence says, and is past the error."""

BUG = "It is a mistake of ours: its way out is a report."
PASSES = "It passes by itself: the client asks again."
VERSION = "Its way out is to run the version that wrote the data, which this tree does not have."
REASONS = {
    sink_errors.ArchiveFormatUnknown: VERSION,
    sink_errors.ArchiveRowsMissing: "Its way out is a file system that all hosts reach, and a test has one host.",
    Away: "It passes by itself when the brokers answer again: tests/unit/web/test_outages.py.",
    BadRequest: "Its sentence is of one form or address, and the page makes neither by itself.",
    errors.BrokerRefused: "Its sentence is the broker's own reason.",
    errors.CoordinatorNotAvailable: PASSES,
    errors.CoordinatorNotStarted: "Its way out is in the coordinator's log, which it names.",
    sink_errors.DeadLettersNotRead: "Its way out is an ACL or a broker, as in each other test of a redrive.",
    source_errors.ExecutorsUnfit: "Its way out is an installation on executors.",
    errors.GroupStateTooNew: VERSION,
    errors.GroupStateTooOld: VERSION,
    errors.GroupTakenOver: VERSION,
    errors.InternalError: BUG,
    errors.InvalidRecordState: "It is the base of errors that have plays; by itself it is a mistake of ours.",
    errors.InvalidRequest: "Its sentence is of one argument; to a program's client it is a mistake of ours.",
    LeaderNotReachable: "Its way out is a network, which a test with one host does not have.",
    source_errors.LogNotTold: "Its way out is to remove a setting of Spark 4.0, as in every other test of that Spark.",
    errors.NotCoordinator: PASSES,
    NotDone: "Its way out is a correct program or more time, which each test of docs/do/test-your-query.md is.",
    errors.OutageTooLong: "Its way out is brokers that answer again: the query that waits longer is past it in "
    "tests/integration/test_broker_outage.py.",
    OutcomesNotKnown: "Its way out is to call outcomes() sooner, as each other test of sharegroup.testing does.",
    OwnedElsewhere: PASSES,
    host_errors.OwnerMissing: "Its way out is another host: tests/integration/test_hosts_acls.py has two.",
    source_errors.ReadDenied: "Its way out is an ACL, with which each other test of a guarded broker reads.",
    source_errors.ReadFailed: "Its sentence is the client's own reason, and its way out is to remove that.",
    source_errors.ReadTimeout: "Its way out is a broker that answers: tests/integration/readers/test_losses.py has it.",
    RecordsNotKept: "Its way out is fewer or smaller records, which each other test of sharegroup.testing has.",
    sink_errors.RedriveChanged: "Its way out is another dry run, which each other test of a redrive with as_shown is.",
    sink_errors.RedriveIntoItself: "Its way out is another topic, or none, as in each other test of a redrive.",
    sink_errors.RedriveTargetMissing: "Its way out, to leave dead letters out, is the one of RedriveStopped's test.",
    errors.RemoteError: BUG,
    host_errors.RequestTooLate: PASSES,
    errors.StateBatchUnreadable: "Its way out is another replica, and the tests' broker is the only one.",
    errors.StateRecordUnreadable: "Its way out is a copy of the state, which no test of a store takes.",
    errors.StateTopicUnfit: "Its way out is the topic's configuration, which state topics of all other tests have.",
    TokenEndpointNotReachable: "Its way out is a network, which a test with one host does not have.",
    errors.TopicNotAuthorized: "Its way out is an ACL, with which each other test of a guarded broker reads.",
    UnreadableRecord: VERSION,
}
"""Why nobody can walk the way out of the error, in a sentence."""
