"""Several hosts that have nothing in common but Kafka: each group has one owner, and the coordinators of the other
hosts pass their clients' requests on to it, as records of Kafka topics."""
