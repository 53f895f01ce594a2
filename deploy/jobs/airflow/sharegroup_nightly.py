"""The nightly job as an Airflow DAG: each night, ten retries. docs/learn/jobs.md says what it needs."""

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="sharegroup_nightly",
    description="Write the records that a share group has now.",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,  # a run takes whatever is there: a night that was missed needs no run of its own
    max_active_runs=1,  # two runs with one checkpoint would take the batch from each other
):
    BashOperator(
        task_id="nightly",
        bash_command=(
            "exec spark-submit --master 'local[*]' /opt/sharegroup/jobs/nightly.py"
            " --folder /var/lib/sharegroup-nightly --options /etc/sharegroup/nightly.json"
        ),
        append_env=True,  # the worker's PATH, on which spark-submit is
        env={"PYSPARK_PYTHON": "/opt/sharegroup/bin/python"},
        retries=10,
        # Shorter than share.session.timeout.ms in nightly.py: a retry then keeps the batch that it left.
        retry_delay=timedelta(minutes=1),
        execution_timeout=timedelta(hours=4),
    )
