"""Host: write tests/goldens/tokenizers.json: token ids and chat prompts of two real models, as transformers gives them.

    python scripts/goldens/tokenizer_goldens.py MODELS    (needs torch, transformers 5 and gguf; MODELS holds the files)

transformers does not know the pre-tokenizer that SmolLM2's file names (`smollm`) and cuts as GPT-2 does, which differs
where spaces stand before a digit. The rule of the tokenizer.json that SmolLM2 was published with, digits one by one, is
put in its place; llama.cpp gives the same ids. In `decoded`, null stands for the text itself.
"""

import argparse
import json
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

MODELS = {
    "smollm2-135m-instruct": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m": "gemma-3-270m.Q4_K_M.gguf",
}

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\t",
    "a",
    " a",
    "The capital of France is",
    "  leading and trailing  ",
    "Hello, world! How's it going? I'll say we've done; they'd agree, I'M SURE.",
    "numbers 0 1 12 123 1234 12345 3.14159 1,000,000 ½ ² ① ٣٤ 2024-11-05T12:34:56Z",
    "  1\n  22\n   333\n\t4444",
    "a  b   c    d     e      f" + " " * 20 + "g" + " " * 40 + "h",
    "tabs\there\t\tand\t\t\tthere\n\tindented\n\n\n\nfour newlines\r\nwindows\r\r\nmixed \n \n",
    "\n" * 40 + "\t" * 40 + "x",
    "def f(x: int) -> dict[str, int]:\n    return {'a': x ** 2, \"b\": ~x & 0xFF}  # comment\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b->c * 1e-9; } // done\n#include <stdio.h>\n",
    "<table><tr><td>1</td></tr></table><h1>Title</h1><div class='x'>&amp;</div>",
    '{"key": [1, 2.5, null, true], "nested": {"é": "\\u00e9\\n"}}',
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt",
    "Où est la bibliothèque ? Çà et là, cœur, œuvre, Straße, Größe, señor, ¿qué?",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Íslenska: þetta er ágætt.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. שלום עולם، السلام عليكم ورحمة الله",
    "敏捷的棕色狐狸跳过懒狗。素早い茶色の狐がのろまな犬を飛び越える。한국어 문장도 있습니다.",
    "नमस्ते दुनिया। สวัสดีชาวโลก မင်္ဂလာပါ ሰላም ለዓለም გამარჯობა Բարեւ",
    "emoji: 😀😃🎉🚀 flags 🇫🇷🇯🇵 skin 👍🏽 family 👩‍👩‍👧‍👦 heart ❤️ keycap 1️⃣ rainbow 🏳️‍🌈",
    "combining: e\u0301 n\u0303 a\u0308 \u1e9b\u0323 zero\u200bwidth\u200cjoin\u200der\u2060 bom\ufeff nbsp\u00a0end",
    "rare: 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀𒁀 𓀀𓂀 𐍈 ꙮ ௵ ﷽ 🜁 \U0010fffd \ue000 \ufffd",
    "control: \x00\x01\x07\x1b[31m\x7f\x85\u2028\u2029 end",
    "math: ∀x∈ℝ: ⌈x⌉ ≥ x ∧ √2 ≠ 1.41… ± ∞ → ⇒ ∑∏∫",
    "quotes “double” ‘single’ «guillemets» — em – en … ellipsis • bullet ™ ® ©",
    "▁ U+2581 itself ▁▁ and Ġ Ċ of the byte alphabet",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "x<|endoftext|>y <|im_end|> z<|im_end|><|im_end|>",
    "<bos>a<eos> <start_of_turn>user\nHi<end_of_turn>\n<unused7><pad><unk><mask>",
    "<0x41><0xFF> <|not a token|> [multimodal] <think>",
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ababababababab xyxyxyxyxyx",
    "WHY ARE WE SHOUTING? camelCaseAndPascalCase snake_case_name kebab-case-name SCREAMING_SNAKE",
    "..... ,,,, ;;;; ----- ===== ***** ##### !!!!! ????? ((((( ))))) [[[[]]]] {{{{}}}}",
    "The quick brown fox jumps over the lazy dog. " * 60,
    "naïve café 🙂\n\t" * 40,
]

CHATS = [
    {"messages": [{"role": "user", "content": "What is 2+2?"}]},
    {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False},
    {
        "messages": [
            {"role": "system", "content": "Be brief.\nBe kind."},
            {"role": "user", "content": "Héllo <|im_end|> 😀"},
            {"role": "assistant", "content": " Hi! "},
            {"role": "user", "content": ""},
        ]
    },
    {
        "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, two,"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    {
        "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, two, "}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
]


def rendered(tokenizer, chat: dict) -> str:
    options = {"add_generation_prompt": True} | chat
    return tokenizer.apply_chat_template(options.pop("messages"), tokenize=False, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder that holds the GGUF files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "goldens" / "tokenizers.json")
    args = parser.parse_args()
    goldens = {"texts": TEXTS, "models": {}}
    for name, file in MODELS.items():
        tokenizer = AutoTokenizer.from_pretrained(args.models, gguf_file=file)
        backend = tokenizer.backend_tokenizer
        if name.startswith("smollm2"):
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        ids = [tokenizer(text).input_ids for text in TEXTS]
        decoded = [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
        goldens["models"][name] = {
            "ids": ids,
            "decoded": [None if found == text else found for found, text in zip(decoded, TEXTS, strict=True)],
            "chats": [chat | {"text": rendered(tokenizer, chat)} for chat in CHATS if tokenizer.chat_template],
        }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(goldens, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
