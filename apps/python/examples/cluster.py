"""Gives the cluster of this machine eight tasks, and shows each result as it comes.

    radeon-cluster start
    python cluster.py
"""

from __future__ import annotations

import asyncio

import legacy_gpu
import numpy as np


async def main() -> None:
    client = legacy_gpu.Client()
    print(f"{len(client.workers())} workers, {len(client.models())} models")
    random = np.random.default_rng()
    images = random.integers(0, 17, (8, 1, 1, 8, 8)).astype(np.float32)
    tasks = client.batch(legacy_gpu.NewTask("digits", {"image": image}) for image in images)
    async for task in client.as_completed(tasks):
        outputs = await task
        print(f"{task.id}: logits say {outputs['logits'].argmax()}")


if __name__ == "__main__":
    asyncio.run(main())
