"""Settings that all processes share.

Watch them in some shells:     python examples/config.py watch     (until there is a setting "stop")
change them in another one:    python examples/config.py set colour=red size=3
                               python examples/config.py add size 2
and print them:                python examples/config.py
"""

import json
import sys

from distsync.recipes import Config

config = Config(name="example")

match sys.argv[1:]:
    case ["watch"]:
        config.on_change = lambda before, now: print(f"{before} -> {now}", flush=True)
        config.wait_for(lambda: "stop" in config)
    case ["set", *settings]:
        config.update(setting.split("=", 1) for setting in settings)  # all at once
    case ["add", key, number]:
        config.edit(lambda settings: settings.update({key: int(settings.get(key, 0)) + int(number)}))
    case _:
        print(json.dumps(dict(config)))
