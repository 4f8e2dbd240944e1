"""Host: the texts on which tokenizers are compared: scripts, emoji, code, white space, and text like special tokens.

The goldens (tests/goldens/tokenizers.json) depend on the order: after a change, write them again.
"""

import random
import unicodedata
from collections.abc import Iterator

SCRIPTS = [
    "Où est la bibliothèque ? Çà et là, cœur, œuvre, Straße, Größe, señor, ¿qué?",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Íslenska: þetta er ágætt.",
    "İstanbul'da ılık bir gün; DİYARBAKIR, ığdır. Tiếng Việt: Nghiêng nghiêng, đường phố Hà Nội.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, ЪЫЬ.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΐ ΰ Ὀδυσσεύς, ἄνδρα μοι ἔννεπε, Μοῦσα.",
    "السلام عليكم ورحمة الله وبركاته، كيف حالك اليوم؟ الكتابُ مُفيدٌ جِدًّا. ١٢٣٤٥٦",
    "اردو میں لکھا ہوا جملہ، فارسی: می‌خواهم کتاب‌ها را بخوانم.",
    "שלום עולם! מה שלומך היום? בְּרֵאשִׁית בָּרָא אֱלֹהִים 123 abc",
    "mixed \u202eright to left\u202c and \u2067isolated\u2069 with \u200fmarks\u200e",
    "नमस्ते दुनिया। क्या आप हिन्दी पढ़ सकते हैं? क्षत्रिय ज्ञान श्रृंखला १२३",
    "বাংলা ভাষা সুন্দর। தமிழ் மொழி பழமையானது. తెలుగు భాష. ಕನ್ನಡ ನುಡಿ. മലയാളം ഭാഷ.",
    "สวัสดีชาวโลก ภาษาไทยเขียนติดกันโดยไม่มีช่องว่าง เปิดน้ำให้หน่อย ๒๕๖๗",
    "မင်္ဂလာပါ ကမ္ဘာ။ ភាសាខ្មែរ ພາສາລາວ བོད་སྐད་ སිංහල",
    "敏捷的棕色狐狸跳过懒狗。我们今天去公园散步,好吗?三百二十一元。",
    "繁體中文:龍門飛甲,憂鬱的臺灣烏龜。「引號」『雙引號』《書名》……——",
    "素早い茶色の狐がのろまな犬を飛び越える。ひらがな、カタカナ、ヴァイオリン、ガギグ、ﾊﾝｶｸ。",
    "한국어 문장도 있습니다. 안녕하세요! 값싼 닭을 삶았다. \u1112\u1161\u11ab\u1100\u1173\u11af ㄱㄴㄷ ㅋㅋㅋ",
    "ሰላም ለዓለም። გამარჯობა მსოფლიო. Բարեւ աշխարհ։ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ᠮᠣᠩᠭᠣᠯ ⵜⴰⵎⴰⵣⵉⵖⵜ",
    "rare: 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝐛𝐨𝐥𝐝 𒀀𒁀 𓀀𓂀 𐍈 ꙮ ௵ ﷽ 🜁 𠜎𠜱𪚥 \U0010fffd \ue000 \ufffd",
    "ＦＵＬＬＷＩＤＴＨ ｔｅｘｔ １２３ ﬁ ﬂ ﬃ Ⅷ ㎏ ℡ ª º ﷺ",
]
EMOJI = [
    "emoji: 😀😃🎉🚀 flags 🇫🇷🇯🇵🇺🇳 skin 👍🏽 family 👩‍👩‍👧‍👦 heart ❤️ keycap 1️⃣ rainbow 🏳️‍🌈",
    "🇦🇧🇨🇩🇪 👨🏿‍🚀👩🏻‍❤️‍💋‍👩🏾 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🧑‍🤝‍🧑 ☎︎ ☎️ #️⃣ *️⃣ 🫠🪿🫨",
    "👍👍🏻👍🏼👍🏽👍🏾👍🏿😀😀😀😀 text😀text 😀 ¯\\_(ツ)_/¯ (╯°□°)╯︵ ┻━┻",
]
MARKS = [
    "combining: e\u0301 n\u0303 a\u0308 \u1e9b\u0323 zero\u200bwidth\u200cjoin\u200der\u2060 bom\ufeff nbsp\u00a0end",
    "Z\u0351\u036b\u0343a\u0327\u0300\u0301\u0302\u0303l\u0334\u0335\u0336g\u0315\u031ao\u0321\u0322 \u0301alone",
    "é e\u0301 Å A\u030a \u212b ﬁ ſ ǆ ô\u0323 o\u0323\u0302 \u1100\u1161 \uac00 \u0958 \u0915\u093c",
    "\ufeffbegins with a byte order mark",
    "soft\u00adhyphen word\u2011joiner narrow\u202fspace thin\u2009space em\u2003space ideographic\u3000 ogham\u1680",
]
CODE = [
    "def f(x: int) -> dict[str, int]:\n    return {'a': x ** 2, \"b\": ~x & 0xFF}  # comment\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b->c * 1e-9; } // done\n#include <stdio.h>\n",
    'fn main() {\n    let v: Vec<&\'a str> = s.split("::").collect();\n    println!("{:?}", v?.len());\n}\n',
    "const f = async ({a, ...b}) => `${await a?.b ?? '\\n'}`;\nexport default f; /* é */\n",
    "SELECT t.*, COUNT(1) FROM \"t\" WHERE x <> 'it''s' AND y >= 10 GROUP BY 1; -- ok\n",
    "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(\"hi\", 0b1010, 'x', '\\u00e9')\n}\n",
    "#!/usr/bin/env bash\nset -euo pipefail\nfor f in *.txt; do echo \"${f%.*}\" | sed 's/a/b/g' >>out; done\n",
    "main :: IO ()\nmain = mapM_ (print . (`div` 2)) [x | x <- [1..10], odd x] >>= \\_ -> pure ()\n",
    "<table><tr><td>1</td></tr></table><h1>Title</h1><div class='x'>&amp;</div><!-- c --><br/>",
    '{"key": [1, 2.5, null, true], "nested": {"é": "\\u00e9\\n"}}',
    "key: value\nlist:\n  - a\n  - b: |\n      text\n\n# comment\n[toml]\nx = 1_000\n",
    "\\begin{align} \\frac{\\partial f}{\\partial x_i} &= \\sum_{j=1}^{n} a_{ij} \\\\ \\end{align}",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt ../x/./y ~/.z",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n \n\\ No newline at end of file",
    "| a | b |\n|---|:-:|\n| **x** | `y` |\n\n1. one\n   * two\n\n> quote\n```py\nx\n```",
]
SPACES = [
    "",
    " ",
    "  ",
    "\n",
    "\t",
    "\r\n",
    "\u00a0",
    "\u3000\u3000",
    " \n \n",
    "a",
    " a",
    "  a",
    "a ",
    "a  \n",
    "  leading and trailing  ",
    "a  b   c    d     e      f" + " " * 20 + "g" + " " * 40 + "h",
    "tabs\there\t\tand\t\t\tthere\n\tindented\n\n\n\nfour newlines\r\nwindows\r\r\nmixed \n \n",
    "line\r\nline\r\n\r\n  line\rold mac\n\r",
    "\n" * 40 + "\t" * 40 + "x",
    " \t \t\t  \n\t \n\n \t",
    "x" + " " * 200,
    "\u00a0\u00a0a \u00a0b\u00a0 c\u2028d\u2029e\x0bf\x0cg\x85h",
]
NUMBERS = [
    "numbers 0 1 12 123 1234 12345 3.14159 1,000,000 ½ ² ① ٣٤ 2024-11-05T12:34:56Z",
    "  1\n  22\n   333\n\t4444",
    "0123456789012345678901234567890 1e10 -1.5E-3 0x1F +42 1/2 50% $9.99 €1.000,00 #1 no.7 3rd x2y3z",
    "math: ∀x∈ℝ: ⌈x⌉ ≥ x ∧ √2 ≠ 1.41… ± ∞ → ⇒ ∑∏∫ ₁₂ ³⁴ ⅓",
]
LOOK_ALIKES = [
    "▁ U+2581 itself ▁▁ and Ġ Ċ of the byte alphabet âĢĻ",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "x<|endoftext|>y <|im_end|> z<|im_end|><|im_end|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|> <|eom_id|><|python_tag|>",
    "<bos>a<eos> <start_of_turn>user\nHi<end_of_turn>\n<unused7><pad><unk><mask>",
    "<tool_call>\n{}\n</tool_call> <|vision_pad|><|fim_prefix|> <start_of_image> [INST] </s><s>",
    "<0x41><0xFF> <|not a token|> [multimodal] <think> < |im_end| > <|im_end| <|IM_END|>",
    "  <|im_end|>  <|eot_id|>  <end_of_turn>  ",
    "control: \x00\x01\x07\x1b[31m\x7f\x85\u2028\u2029 end",
]
WORDS = [
    "The capital of France is",
    "Hello, world! How's it going? I'll say we've done; they'd agree, I'M SURE.",
    "quotes “double” ‘single’ «guillemets» — em – en … ellipsis • bullet ™ ® © don’t",
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ababababababab xyxyxyxyxyx",
    "WHY ARE WE SHOUTING? camelCaseAndPascalCase snake_case_name kebab-case-name SCREAMING_SNAKE",
    "..... ,,,, ;;;; ----- ===== ***** ##### !!!!! ????? ((((( ))))) [[[[]]]] {{{{}}}}",
    "The quick brown fox jumps over the lazy dog. " * 20,
    "naïve café 🙂\n\t" * 20,
]
TEXTS = [*SCRIPTS, *EMOJI, *MARKS, *CODE, *SPACES, *NUMBERS, *LOOK_ALIKES, *WORDS]

RANGES = (
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x300, 0x370),
    (0x370, 0x600),
    (0x600, 0x780),
    (0x900, 0x0E80),
    (0x2000, 0x2100),
)
RANGES += ((0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xFE00, 0x10000), (0x1F000, 0x1FB00), (0, 0x110000))
JOINTS = (" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u200d", "\ufe0f", "'s", "1", "<", "|")


def random_texts(seed: int, count: int) -> Iterator[str]:
    """Alternates three mixtures: characters of one range, of all ranges, and joined pieces of the texts above."""
    rng = random.Random(seed)
    for i in range(count):
        if i % 3 == 0:
            yield "".join(_character(rng, RANGES[i // 3 % len(RANGES)]) for _ in range(rng.randrange(1, 60)))
        elif i % 3 == 1:
            yield "".join(
                rng.choice(JOINTS) if rng.random() < 0.3 else _character(rng, rng.choice(RANGES))
                for _ in range(rng.randrange(1, 80))
            )
        else:
            yield rng.choice(JOINTS).join(_piece(rng) for _ in range(rng.randrange(1, 6)))


def _character(rng: random.Random, between: tuple[int, int]) -> str:
    """A random character of the range, surrogates excluded."""
    while unicodedata.category(found := chr(rng.randrange(*between))) == "Cs":
        pass
    return found


def _piece(rng: random.Random) -> str:
    text = rng.choice(TEXTS)
    start = rng.randrange(len(text) + 1)
    return text[start : start + rng.randrange(1, 40)]
