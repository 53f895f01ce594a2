"""The ShareConsumer: plain Python takes part in a share group, under the API of confluent_kafka.ShareConsumer.

``consumer`` has the methods that programs call; ``in_flight`` the records that a consumer holds and what was decided
about them; ``membership`` the member's session; ``fetching`` acquires and reads; ``worker`` the threads that call the
coordinator; ``renewal`` renews locks in the background; ``options`` checks the constructor's configuration;
``aio`` has the AsyncShareConsumer."""
