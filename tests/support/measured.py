"""A runtime with the metrics of a coordinator, and its scrapes."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from coordinator.service.metrics.endpoint import Metrics
from tests.support.runtime_service import Service


class Groups:
    """The runtime of a Service, as the gauges see an event loop."""

    def __init__(self, service):
        self.service = service

    def call_each(self, transaction_of):
        served = [group_id for group_id, group in self.service.runtime.groups.items() if group.exists]
        return {group_id: self.service.look(transaction_of(group_id), group_id) for group_id in served}

    def rested_groups(self):
        return dict(self.service.runtime.rested)


class Measured:
    """A runtime with metrics, and its scrapes."""

    def __init__(self, path, ends):
        self.metrics = Metrics("127.0.0.1", 0)
        self.service = Service(path, measures=self.metrics.counters, keeps_measures=True)
        self.metrics.measure(Groups(self.service), lambda partitions, committed: ends)
        self.service.create()

    def samples(self):
        """The samples of one scrape, without those of the process."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return [
            sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.name.startswith("share_") and not sample.name.endswith(("_created", "_bucket"))
        ]

    def scrape(self):
        """The values of one scrape, by the sample's name and the sorted values of its labels."""
        return {(sample.name, *sorted(sample.labels.values())): sample.value for sample in self.samples()}
