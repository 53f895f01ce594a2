"""Runs transactions on groups, and makes what they decide durable. Without errors, deadlines, snapshots and unloading,
which runtime.py has, its loop is::

    while requests := wait_for_requests():
        decided, replies = {}, []
        for request in requests:
            group = groups.get(request.group_id)
            if group is None:
                group = ShareGroup(request.group_id)
                for data in store.load(request.group_id):  # 1. fence, 2. load
                    replay(group, decode_record(data))
                groups[request.group_id] = group
            decision = decide(group, request, now_ms)
            for record in decision.records:
                replay(group, record)
            decided.setdefault(request.group_id, []).extend(decision.records)
            replies.append((request, decision.reply))
        store.append(decided)  # 3. append
        for request, reply in replies:  # 4. then answer
            request.answer(reply)

1. Fence: before a load returns its first record, no former owner of the group can append any more.
2. Load: all that is durable is replayed before the first decision, and an append whose outcome was unknown is settled.
3. Append: all that a round decided is durable, for each group all of it or nothing, before anybody hears of it. A
   request that decided nothing waits for it, too: an empty append proves that this process still owns the group.
4. Answer: only then. A group whose append failed is dropped, its requests get an error, and the next request loads it
   again."""
