"""Share groups as tables: Arrow tables by functions (``views.offsets(conf, "billing")``), DataFrames by the option
``view`` of ``spark.read.format("sharegroup")``. A view acquires no record, and locks no group."""

from share_source.views.record_rows import records
from share_source.views.tables import dead_letters, groups, in_flight, members, offsets

__all__ = ["dead_letters", "groups", "in_flight", "members", "offsets", "records"]
