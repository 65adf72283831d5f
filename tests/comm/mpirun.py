"""Output of ranks below an mpirun that may itself hang."""

import os
import signal
import subprocess
import threading


def kill_session(process):
    """Kills a process that leads a session, and all processes in it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def hear_twice(sentence, words, environment, patience):
    """The lines that a command writes until two ranks have said the sentence.

    If a process ends while MPI starts, mpirun may hang at its own end, so that is not waited for.
    """
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as run:
        end = threading.Timer(patience, kill_session, (run,))
        end.start()
        heard = []
        while heard.count(f"{sentence}\n") < 2 and (line := run.stdout.readline()):
            heard.append(line)
        end.cancel()
        kill_session(run)
    return heard
