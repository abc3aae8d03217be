"""The chat format and the tokenizer: what a conversation looks like as tokens."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL = [PAD, START, END]

# The template that goes into the GGUF. It is kept to what every Jinja engine knows: a loop, conditions and string sums.
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] %}{{ message['content'] }}{% endif %}"
    "{{ '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(texts: list[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE with the splitting rules of GPT-2, which llama.cpp knows by the name gpt-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=2, special_tokens=CONTROL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    ))
    return tokenizer


class Encoder:
    """Turns conversations into token ids and, for training, the weight of each token in the loss."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # as text, that is: nobody can type a control token
        self.pad, self.start, self.end = (tokenizer.token_to_id(t) for t in CONTROL)
        self.known: dict[str, list[int]] = {}

    def plain(self, text: str) -> list[int]:
        """Tokens of text in which the names of control tokens are text like any other."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _kept(self, text: str) -> list[int]:
        if text not in self.known:
            self.known[text] = self.plain(text)
        return self.known[text]

    def open(self, role: str) -> list[int]:
        return [self.start] + self._kept(role + "\n")

    def message(self, role: str, text: str) -> list[int]:
        # Role, line end and text are one piece of text for the tokenizer, as in llama.cpp.
        return [self.start] + self.plain(role + "\n" + text) + [self.end] + self._kept("\n")

    def training(self, conversation) -> tuple[list[int], list[float]]:
        """Token ids, and a weight of 1 for those that the model must predict: answers and the end of turn."""
        ids = self.message("system", conversation.system) if conversation.system else []
        weights = [0.0] * len(ids)
        for turn in conversation.turns:
            asked = self.message("user", turn.user) + self.open("assistant")
            answered = self._kept(turn.answer) + [self.end]
            ids += asked + answered + self._kept("\n")
            weights += [0.0] * (len(asked) + turn.skip) + [1.0] * (len(answered) - turn.skip) + [0.0]
        if conversation.cut:
            keep = len(ids) - len(answered) - 1 + min(conversation.cut, len(answered))
            ids, weights = ids[:keep], weights[:keep]
        return ids, weights

    def question(self, question: str, system: str = "") -> list[int]:
        """The prompt of a conversation with one question, ready for the answer."""
        ids = self.message("system", system) if system else []
        return ids + self.message("user", question) + self.open("assistant")
