"""Accounts in files that change all or not at all, each account kept by a process of its own.

Start the keepers, each in a shell of its own, then let somebody pay; the letters are the accounts:
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
    """The vote: whether there is enough. What is needed to commit is safe before this returns."""
    new = balance() + changes[account.name]
    account.with_suffix(".new").write_text(str(new))
    return new >= 0


def commit(changes):
    """It may be called twice, if this process dies in between: the second time nothing is left to do."""
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
