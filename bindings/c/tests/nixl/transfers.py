"""Runs and verifies random transfers within a process and between two: transfers.py ENGINE COUNT SEED [OPTION=VALUE...]

READ and WRITE, 1 to 64 pieces, up to 8 transfers at once, with and without notifications. A model of all memory has
the expected bytes.
"""

import random
import sys

import numpy as np

import peers

BLOCK, BLOCKS = 16 << 10, 512
LENGTH = BLOCK * BLOCKS


def pieces(rng, blocks, lengths):
    """Returns one range of each length, each in its own block."""
    return [block * BLOCK + rng.randrange(BLOCK - length + 1) for block, length in zip(blocks, lengths)]


def main(engine, count, seed, options):
    rng = random.Random(seed)
    me = peers.agent("initiator", engine=engine, **options)
    target = peers.Target(LENGTH, **options)
    me.add_remote_agent(target.metadata)
    noise = np.random.default_rng(seed)
    ours = noise.integers(0, 256, LENGTH, dtype=np.uint8)
    second = noise.integers(0, 256, LENGTH, dtype=np.uint8)
    target.memory[:] = noise.integers(0, 256, LENGTH, dtype=np.uint8)
    ranges = [(memory.ctypes.data, LENGTH, 0, "") for memory in (ours, second)]
    registered = me.register_memory(ranges, "DRAM", backends=[peers.BACKEND])
    # The remote side of a transfer: memory of the target, or of this process.
    sides = [(target.name, target.address, target.memory), ("initiator", second.ctypes.data, second)]
    expected = {id(memory): memory.copy() for memory in (ours, second, target.memory)}

    done = sent = local = 0
    while done < count:
        free = {id(memory): rng.sample(range(BLOCKS), BLOCKS) for memory in (ours, second, target.memory)}
        running, messages, own_messages = [], [], []
        for _ in range(rng.randint(1, 8)):
            name, address, memory = rng.choice(sides)
            lengths = [rng.randint(1, rng.choice((64, 4096, BLOCK))) for _ in range(rng.randint(1, 64))]
            mine = pieces(rng, [free[id(ours)].pop() for _ in lengths], lengths)
            theirs = pieces(rng, [free[id(memory)].pop() for _ in lengths], lengths)
            operation = rng.choice(("READ", "WRITE"))
            message = b"transfer %d" % (done + len(running)) if rng.random() < 0.3 else b""
            descriptors = [
                me.get_xfer_descs([(base + at, length, 0) for at, length in zip(places, lengths)], "DRAM")
                for base, places in ((ours.ctypes.data, mine), (address, theirs))
            ]
            handle = me.initialize_xfer(operation, *descriptors, name, message, backends=[peers.BACKEND])
            left, right = expected[id(ours)], expected[id(memory)]
            for at, to, length in zip(mine, theirs, lengths):
                if operation == "WRITE":
                    right[to : to + length] = left[at : at + length]
                else:
                    left[at : at + length] = right[to : to + length]
            if message:
                (messages if name == target.name else own_messages).append(message)
            local += name == "initiator"
            assert me.transfer(handle) in ("PROC", "DONE")
            running.append(handle)
        for handle in running:
            state = peers.wait(me, handle)
            assert state == "DONE", state
            me.release_xfer_handle(handle)
        for memory in (ours, second, target.memory):
            assert np.array_equal(memory, expected[id(memory)]), f"wrong bytes within transfers {done} and later"
        assert sorted(target.notifications(len(messages))) == sorted(messages)
        assert sorted(me.get_new_notifs().get("initiator", [])) == sorted(own_messages)
        done += len(running)
        sent += len(messages) + len(own_messages)
    me.deregister_memory(registered, backends=[peers.BACKEND])
    me.remove_remote_agent(target.name)
    target.end()
    name = " ".join([engine, *(f"{key}={value}" for key, value in options.items())])
    print(f"{name}: {done} transfers, {local} of them within the process, {sent} notifications, 0 wrong")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), dict(option.split("=", 1) for option in sys.argv[4:]))
