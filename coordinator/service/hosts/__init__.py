"""Several hosts that share nothing but Kafka: each group has one owner. The coordinators of the other hosts pass their
clients' requests on to the owner, as records of Kafka topics."""
