#!/usr/bin/env python3
"""Runs a program in slow motion: its threads, and those of its children, stop at random moments while the others go on.

    ci/hold_threads.py PROGRAM [ARGUMENTS]

Most threads run for some microseconds, stop for a millisecond, and so on. Some stop for up to 300 ms, as on a crowded machine. So two tests
of one program, or two threads of one test, meet in orders that otherwise need a rare moment. The longer the program runs, the fewer the
stops, so that it ends. The stops are those of a debugger (ptrace); they interrupt system calls. Exits with the program's status, or with
128 and the number of the signal that ended it. Used by ci/stress.sh.
"""

import ctypes
import os
import random
import signal
import sys
import time

CONT, SEIZE, INTERRUPT, LISTEN = 7, 0x4206, 0x4207, 0x4208
# TRACEFORK, TRACEVFORK, TRACECLONE, EXITKILL: new threads and processes are traced, and end with this one.
OPTIONS = 0x2 | 0x4 | 0x8 | 0x100000
EVENT_STOP = 128
WALL = 0x40000000
STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, thread, data=None):
    return libc.ptrace(request, thread, None, data) == 0


def start(command):
    """Starts a traced program. Returns its process."""
    wait, go = os.pipe()
    process = os.fork()
    if process == 0:
        os.read(wait, 1)
        # Python ignores these.
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    if not ptrace(SEIZE, process, OPTIONS):
        sys.exit(f"cannot trace: {os.strerror(ctypes.get_errno())}")
    os.write(go, b"g")
    os.close(wait)
    os.close(go)
    return process


def hold_time():
    """Returns for how long a thread stops, in seconds."""
    dice = random.random()
    if dice < 0.03:
        return random.uniform(0.02, 0.3)
    return random.expovariate(1000) if dice < 0.5 else 0


def waits(thread):
    """Returns whether a thread waits in a system call."""
    try:
        with open(f"/proc/{thread}/stat", "rb") as stat:
            return b") S" in stat.read()
    except OSError:
        return False  # It has ended.


def run(command):
    main = start(command)
    libc.prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: short sleeps are short
    try:
        os.nice(-15)
    except OSError:
        pass  # Then the stops are fewer.
    stops = 0
    running, stopped = {main}, {}  # threads that can be stopped; when a stopped one goes on, and with which signal
    while True:
        while True:
            thread, status = os.waitpid(-1, WALL | os.WNOHANG)
            if thread == 0:
                break
            running.discard(thread)
            stopped.pop(thread, None)
            if not os.WIFSTOPPED(status):
                if thread == main:
                    return os.waitstatus_to_exitcode(status)
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == EVENT_STOP and number in STOP_SIGNALS:
                ptrace(LISTEN, thread)  # The whole process has stopped. It goes on by SIGCONT.
            else:
                stops += 1
                stopped[thread] = (time.monotonic() + hold_time(), 0 if event else number)
        now = time.monotonic()
        due = [thread for thread, (until, _) in stopped.items() if until <= now]
        random.shuffle(due)
        # At first, a thread runs for some microseconds.
        pause = min(0.01, max(0, stops - 5_000) / 1_000_000)
        for thread in due:
            if ptrace(CONT, thread, stopped.pop(thread)[1]):
                running.add(thread)
            if pause == 0:
                interrupt(running, thread)
        for thread in random.sample(tuple(running), min(4, len(running))):
            if interrupt(running, thread):
                break
        time.sleep(random.uniform(0.00001, 0.00002 + pause))


def interrupt(running, thread):
    """Stops a thread that does not wait in a system call. Until it has stopped, it does not belong to `running`."""
    if waits(thread) and random.random() < 0.9:
        return False
    running.discard(thread)
    return ptrace(INTERRUPT, thread)


status = run(sys.argv[1:])
sys.exit(status if status >= 0 else 128 - status)
