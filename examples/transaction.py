"""Accounts in files, each kept by a process of its own. A transfer changes all of them or none.

Start the keepers, each in a shell of its own, and then a transfer. The letters are the accounts:
    python examples/transaction.py ./a keep
    python examples/transaction.py ./b keep
    python examples/transaction.py ./a pay ./b 5
"""

import sys
from pathlib import Path

from distsync import Transaction

if len(sys.argv) < 3:
    sys.exit(__doc__)

mine, what, *rest = sys.argv[1:]
account = Path(mine)
transfers = Transaction(["a", "b"], name="transfers")


def balance():
    return int(account.read_text()) if account.exists() else 10


def prepare(changes):
    """Vote whether the balance suffices. Save what commit needs first."""
    new = balance() + changes[account.name]
    account.with_suffix(".new").write_text(str(new))
    return new >= 0


def commit(changes):
    """Carry out the change. A second call, after a crash of this process, finds nothing left to do."""
    if account.with_suffix(".new").exists():
        account.with_suffix(".new").replace(account)
    print(f"{account.name} has {balance()}", flush=True)


def abort(changes):
    account.with_suffix(".new").unlink(missing_ok=True)
    print(f"{account.name} still has {balance()}", flush=True)


if what == "keep":
    transfers.participant(account.name, prepare, commit, abort).run()
else:
    to, amount = Path(rest[0]).name, int(rest[1])
    transfers.begin({account.name: -amount, to: amount})
    done = transfers.decide(timeout=30)
    print("paid" if done else f"not paid: {transfers.reason}")
