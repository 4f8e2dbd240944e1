"""Host: `HostAdapter`: what is known of a registered adapter, whether it is in host memory or not."""

import os
from dataclasses import dataclass, replace

from jaxserve.core.options.lora_request import Adapter, LoRARequest


@dataclass(slots=True, eq=False)
class HostAdapter:
    """folder: with its files, where it came from such; its address may lead to newer ones by now. num_waiting: requests
    that have not got it yet. num_pins: of requests that need it in host memory. failure: of the last attempt to read it
    again, until the error was reported."""

    adapter: Adapter
    digest: bytes
    folder: str | None
    num_waiting: int = 0
    num_pins: int = 0
    is_reading: bool = False
    failure: str | None = None

    @property
    def has_requests(self) -> bool:
        return self.num_waiting + self.num_pins > 0

    @property
    def request_again(self) -> LoRARequest:
        """What to read again: the files that were found first, unless they are gone."""
        request, folder = self.adapter.request, self.folder
        return request if folder is None or not os.path.isdir(folder) else replace(request, lora_path=folder)
