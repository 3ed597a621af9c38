"""A recogniser's process for tests: ``die``, ``hang`` and ``fail`` as languages do what they say."""

from __future__ import annotations

import json
import sys


def main(mode: str) -> None:
    if mode == "no_model":
        print(json.dumps({"error": "no such model"}), flush=True)
        return
    if mode == "stillborn":
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        count = len(sys.stdin.buffer.read(request["bytes"])) // 4
        match request["language"]:
            case "die":
                return
            case "hang":
                sys.stdin.buffer.read()
            case "fail":
                print(json.dumps({"error": "ValueError: bad"}), flush=True)
            case _:
                print(json.dumps({"segments": [{"text": f"{count} samples"}]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
