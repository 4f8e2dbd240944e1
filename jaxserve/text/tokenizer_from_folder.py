"""Host: a `Tokenizer` from a model's folder: tokenizer.json, and the special tokens in the files next to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.text.folder_json import read_json, token_text
from jaxserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

MAX_TOKENIZER_BYTES = 256 << 20
# Tokens that transformers treats as special because of the tokenizer class alone.
SPECIAL_BY_CLASS = {"GemmaTokenizer": ("<mask>",)}


def tokenizer_from_folder(folder: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    The end ids are those of generation_config.json, else of config.json, and the eos token of tokenizer_config.json or
    special_tokens_map.json. Every token named in the last two is special. Raises `ConfigError` where tokenizer.json is
    missing or malformed.
    """
    folder = Path(folder)
    backend = _backend(folder)
    config = read_json(folder / "tokenizer_config.json")
    names = read_json(folder / "special_tokens_map.json") | config
    _add_missing(backend, _added_tokens(config))

    def id_named(name: str) -> int | None:
        piece = token_text(names.get(name))
        return None if piece is None else backend.token_to_id(piece)

    eos_ids = _eos_ids(read_json(folder / "generation_config.json")) or _eos_ids(read_json(folder / "config.json"))
    if (eos_id := id_named("eos_token")) is not None:
        eos_ids.append(eos_id)
    special = [backend.token_to_id(piece) for piece in _special_pieces(names)]
    special_ids = [i for i in special if i is not None]
    return Tokenizer(backend, eos_ids=eos_ids, bos_id=id_named("bos_token"), special_ids=special_ids)


def _special_pieces(names: dict[str, Any]) -> list[str]:
    """The tokens named bos_token and so on, those in a list or object of additional ones, and those of the class."""
    named: list[Any] = [token for name, token in names.items() if name.endswith("_token")]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more: Any = names.get(name)
        named += cast(dict[str, Any], more).values() if isinstance(more, dict) else []
        named += cast(list[Any], more) if isinstance(more, list) else []
    by_class = SPECIAL_BY_CLASS.get(str(names.get("tokenizer_class")).removesuffix("Fast"), ())
    return [*by_class, *(piece for token in named if (piece := token_text(token)) is not None)]


def _backend(folder: Path) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer as Backend

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(
            f"{folder} holds no tokenizer.json: write one with transformers (AutoTokenizer.from_pretrained(...)."
            "save_pretrained(...)), or set tokenizer to a folder that has one",
            "tokenizer",
        )
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_TOKENIZER_BYTES >> 20} MiB", "tokenizer")
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ConfigError(f"{path} cannot be read: {error}", "tokenizer") from None


def _added_tokens(config: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The ids and tokens of `added_tokens_decoder`, by id."""
    added: Any = config.get("added_tokens_decoder") or {}
    items = list(cast(dict[str, Any], added).items()) if isinstance(added, dict) else [("", added)]
    if not all(key.isascii() and key.isdecimal() and len(key) < 10 and isinstance(token, dict) for key, token in items):
        raise ConfigError("added_tokens_decoder in tokenizer_config.json must map ids to tokens", "tokenizer")
    return sorted((int(key), token) for key, token in items)


def _add_missing(backend: Any, added: list[tuple[int, dict[str, Any]]]) -> None:
    """Adds the tokens that only tokenizer_config.json lists; raises `ConfigError` where their ids do not follow on."""
    from tokenizers import AddedToken

    for token_id, token in added:
        content = token_text(token)
        if content is None or backend.token_to_id(content) is not None:
            continue
        flags = {name: bool(token.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized")}
        backend.add_tokens([AddedToken(content, special=bool(token.get("special", False)), **flags)])
        if backend.token_to_id(content) != token_id:
            message = (
                f"tokenizer_config.json gives {content!r} the id {token_id}, but the next free id is "
                f"{backend.token_to_id(content)}"
            )
            raise ConfigError(message, "tokenizer")


def _eos_ids(config: dict[str, Any]) -> list[int]:
    eos: Any = config.get("eos_token_id")
    ids = cast(list[Any], eos) if isinstance(eos, list) else [eos]
    return [i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i >= 0]
