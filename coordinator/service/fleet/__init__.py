"""Several standalone coordinators that divide the groups among themselves by Kafka's own group protocol."""
