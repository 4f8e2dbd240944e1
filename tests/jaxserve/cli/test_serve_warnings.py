"""`jaxserve serve` says at its start when drafts change texts."""

import json
import logging
from unittest.mock import patch

import pytest

from jaxserve.cli import serve


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ({}, []),
        ({"acceptance": "typical"}, ["acceptance='typical' is not lossless"]),
        ({"synthetic_acceptance": 0.5}, ["texts are not the model's: synthetic_acceptance"]),
    ],
)
def test_drafts_that_change_texts_are_warned_of(options, warnings, caplog):
    drafts = {"method": "ngram", "num_speculative_tokens": 3} | options
    caplog.set_level(logging.WARNING, logger="jaxserve")  # and back: the verb sets it
    with patch("jaxserve.server.run.serve", return_value=0):
        assert serve.run(["m", "--host", "127.0.0.1", "--speculative-config", json.dumps(drafts)]) == 0
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == len(warnings)
    assert all(message.startswith(start) for message, start in zip(found, warnings, strict=True))
