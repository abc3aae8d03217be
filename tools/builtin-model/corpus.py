"""Makes conversations from the hand-written files in data/.

Everything random comes from one generator that the caller seeds, so the same seed gives the same conversations.
"""

import json
import math
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"

# Shares of the kinds of turns; the rest are questions about tandem.
SHARE_FALLBACK = 0.3
SHARE_JSON = 0.04
SHARE_FOLLOWUP = 0.30  # of the turns that follow an answer about tandem
SHARE_SYSTEM = 0.35  # of the conversations
# Choosing the answer is hard and reciting it is easy, so many examples end a little after the choice: more questions for the same work.
SHARE_CUT = 0.8
CUT_TOKENS = 8
# Words that a question can lose and still be the same question.
IDLE_WORDS = set("the a an is are do does of to my me in on it i you can please what which how for that this be there".split())
FILLER_WORDS = "really just please actually now here exactly again maybe also then".split()

FIELDS_LISTED = {"term": ",", "command": ",", "flag": ",", "goal": ";", "error": ";"}
FIELDS_REPEATED = {"ask", "test"}


@dataclass
class Entry:
    """One thing that the model knows: the ways to ask for it and the answer."""

    id: str
    say: str = ""
    more: str = ""
    want: str = ""
    ask: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    slots: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Turn:
    """A question and its answer. skip is the number of leading answer tokens that carry no loss."""

    user: str
    answer: str
    entry: Entry | None = None
    skip: int = 0


@dataclass
class Conversation:
    """cut, if not 0, is the number of tokens to which the last answer is shortened."""

    system: str
    turns: list[Turn]
    cut: int = 0


def lines(name: str) -> list[str]:
    """The lines of a data file without comments and empty lines."""
    text = (DATA / name).read_text(encoding="utf-8")
    return [l for l in text.splitlines() if l.strip() and l != "#" and not l.startswith("# ")]


def sections(name: str) -> dict[str, list[str]]:
    """The lines of a data file by the == header above them."""
    found: dict[str, list[str]] = {}
    for line in lines(name):
        if line.startswith("== "):
            found[line[3:].strip()] = current = []
        else:
            current.append(line)
    return found


def read_entries(name: str) -> list[Entry]:
    entries = []
    for id, body in sections(name).items():
        entry = Entry(id)
        for line in body:
            key, value = (part.strip() for part in line.split(":", 1))
            if key in FIELDS_LISTED:
                entry.slots.setdefault(key, []).extend(v.strip() for v in value.split(FIELDS_LISTED[key]))
            elif key in FIELDS_REPEATED:
                getattr(entry, key).append(value)
            elif key in ("say", "more", "want"):
                setattr(entry, key, value)
            else:
                raise ValueError(f"{name}: {id}: unknown field {key!r}")
        if not entry.say:
            raise ValueError(f"{name}: {id}: no answer")
        entries.append(entry)
    return entries


def read_words() -> dict[str, list[str]]:
    words = {}
    for header, body in sections("words.txt").items():
        slot, separator = header.split()
        parts = body if separator == "line" else " ".join(body).split(separator)
        words[slot] = [p.strip().replace("\\n", "\n") for p in parts if p.strip()]
    return words


def read_synonyms() -> list[tuple[re.Pattern, list[str]]]:
    """For each word that has others like it: a pattern that finds it, and the others."""
    found = []
    for line in lines("synonyms.txt"):
        group = [w.strip() for w in line.split("|")]
        found += [(re.compile(rf"(?<![\w`-]){re.escape(w)}(?![\w-])", re.IGNORECASE), [o for o in group if o != w]) for w in group]
    return found


def normal(text: str) -> str:
    """Text as far as it counts for saying that two questions are the same phrasing."""
    return " ".join(re.findall(r"\w+", text.lower()))


def without_article(noun: str) -> str:
    return re.sub(r"^(an?|the) ", "", noun)


class Corpus:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.entries = read_entries("facts.txt")
        self.by_id = {e.id: e for e in self.entries}
        self.fallback = {e.id: e for e in read_entries("fallback.txt")}
        self.templates = sections("templates.txt")
        self.requests = sections("requests.txt")
        self.followups = sections("followups.txt")
        self.other = lines("other.txt")
        self.other_test = lines("other-test.txt")
        self.systems = lines("systems.txt")
        self.words = read_words()
        self.synonyms = read_synonyms()
        self.askable = [e for e in self.entries if e.ask or e.slots]
        self.frequency = [self._frequency(e) for e in self.askable]
        self.known_numbers = set(re.findall(r"\d+", (DATA / "facts.txt").read_text(encoding="utf-8")))
        self.known_words = set(normal((DATA / "facts.txt").read_text(encoding="utf-8")).split())
        self.terms = [(e, t) for e in self.entries for t in e.slots.get("term", [])]
        self.commands = [(e, c) for e in self.entries for c in e.slots.get("command", [])]
        self.held_out = {normal(q) for e in self.entries for q in e.test} | {normal(q) for q in self.other_test}
        self._check()

    def _check(self):
        for entry in self.entries:
            for question in entry.ask:
                if normal(question) in self.held_out:
                    raise ValueError(f"{entry.id}: {question!r} is both trained on and held out")

    # ---- questions about tandem

    @staticmethod
    def _frequency(entry: Entry) -> float:
        """How often an entry is asked for: more ways to ask need more examples. Long answers cost more, so they come less often."""
        ways = len(entry.ask) + 2 * sum(len(fillers) for fillers in entry.slots.values())
        return ways ** 0.7 * (0.5 if len(entry.say) > 500 else 1)

    def fact(self) -> Turn:
        entry = self.random.choices(self.askable, self.frequency)[0]
        return Turn(self._unseen(lambda: self.phrase(entry)), entry.say, entry)

    def phrase(self, entry: Entry) -> str:
        """One way to ask for the entry, from its own questions or from a template."""
        if entry.ask and (not entry.slots or self.random.random() < 0.6):
            return self.random.choice(entry.ask)
        kind = self.random.choice(sorted(entry.slots))
        filler = self.random.choice(entry.slots[kind])
        if kind == "term" and self.random.random() < 0.4:
            filler = without_article(filler)
        return self.random.choice(self.templates[kind]).replace("{x}", filler)

    def followup(self, last: Turn) -> Turn:
        """A short question after an answer about tandem."""
        kind = self.random.choice(["more", "term", "term", "command"])
        form = self.random.choice(self.followups[kind])
        if kind == "more":
            return Turn(self.vary(form), last.entry.more or self.by_id["more-unknown"].say)
        if kind == "term":
            entry, filler = self.random.choice(self.terms)
            filler = without_article(filler) if self.random.random() < 0.6 else filler
        else:
            entry, filler = self.random.choice(self.commands)
        return Turn(self.vary(form.replace("{" + kind + "}", filler)), entry.say, entry)

    # ---- everything else

    def refusal(self) -> Turn:
        kind = self.random.random()
        if kind < 0.05:
            return self._long_refusal()
        if kind < 0.24:
            return Turn(self._unseen(lambda: self.random.choice(self.other)), self.fallback["unknown"].say)
        if kind < 0.43:
            return Turn(self._unseen(self._foreign), self.fallback["unknown"].say)
        group = self.random.choices(["unknown", "work", "text"], [5, 3, 3])[0]
        form = self.random.choice(self.requests[group])
        return Turn(self._unseen(lambda: self.fill(form)), self.fallback[group].say)

    def _long_refusal(self) -> Turn:
        """A pasted text of up to a thousand tokens, with or without something to do with it."""
        sentences = [self.fill(self.random.choice(["{text}", "{text}", "{snippet}", "{noun} {verb} {word}."]))
                     for _ in range(int(math.exp(self.random.uniform(1, 3.6))))]
        if self.random.random() < 0.25:
            sentences = sentences[:1] * len(sentences)
        ask = self.random.choice(["", "", "Summarise this:", "Translate this into {lang}:", "Correct this text:", "What do you think of this?"])
        parts = [ask] + sentences if self.random.random() < 0.7 else sentences + [ask]
        separator = self.random.choice([" ", " ", "\n"])
        answer = self.fallback["text" if ask.endswith(":") else "unknown"].say
        return Turn(self.fill(separator.join(p for p in parts if p)), answer)

    def _foreign(self) -> str:
        """A form used for questions about tandem, filled with a word that has nothing to do with it."""
        kind = self.random.choice(sorted(self.templates))
        filler = {
            "term": lambda: self.random.choice(["", "a ", "the "]) + self.fill(self.random.choice(["{noun}", "{noun}", "{word}"])),
            "command": lambda: self.fill(self.random.choice(["{word}", "{noun}"])),
            "flag": lambda: "--" + self.fill("{word}"),
            "goal": lambda: self.fill("{verb}"),
            "error": lambda: self.fill(self.random.choice(["error {n}", "{n}", "{word} {word}", "{noun} not found", "{snippet}"])),
        }[kind]()
        return self.random.choice(self.templates[kind]).replace("{x}", filler)

    def fill(self, form: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda m: self._slot(m.group(1)), form)

    def _slot(self, name: str) -> str:
        if name == "n":
            return self._number()
        if name == "word":
            return self._word()
        if name == "term":
            return self.random.choice(self.terms)[1]
        if name == "goal":
            return self.random.choice(self.random.choice([e for e in self.entries if "goal" in e.slots]).slots["goal"])
        if name == "question":
            return self.random.choice(self.random.choice([e for e in self.entries if e.ask]).ask)
        return self.random.choice(self.words[name])

    def _number(self) -> str:
        while True:
            number = str(self.random.randrange(10 ** self.random.randint(1, 5)))
            if number not in self.known_numbers:
                return number

    def _word(self) -> str:
        """A word that is not one of tandem's: an ordinary one, one that sounds like one, or only letters."""
        while True:
            kind = self.random.random()
            if kind < 0.3:
                word = self.random.choice(self.random.choice(self.words["noun"]).split())
            elif kind < 0.8:
                syllable = lambda: self.random.choice("b c d f g h j k l m n p r s t v w z br st tr pl sh ch".split()) \
                    + self.random.choice("a e i o u ai ea oo".split()) + self.random.choice(["", "", "n", "r", "s", "l", "t", "m", "ck"])
                word = "".join(syllable() for _ in range(self.random.randint(1, 4)))
            else:
                word = "".join(self.random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=self.random.randint(1, 10)))
            if normal(word) not in self.known_words:
                return word

    # ---- JSON, so that answers under a grammar come to an end

    def json_turn(self) -> Turn:
        value = {self._key(): self._value(2) for _ in range(self.random.randint(1, 5))}
        if self.random.random() < 0.25:
            value = {"name": self._key(), "arguments": value}
        style = self.random.random()
        if style < 0.7:
            answer = json.dumps(value)
        elif style < 0.85:
            answer = json.dumps(value, separators=(",", ":"))
        else:
            answer = json.dumps(value, indent=2)
        if self.random.random() < 0.4:  # asked for anything: the grammar supplies the brace, the model only what follows
            turn = self.fact() if self.random.random() < 0.5 else self.refusal()
            return Turn(turn.user, answer, skip=1)
        ask = self.random.choice([
            "Answer in JSON with the keys {keys}.", "Reply in JSON. Keys: {keys}", "Give me a JSON object with {keys}",
            "Return JSON with the fields {keys}", "JSON only, with {keys}", "Output JSON: {keys}",
        ])
        return Turn(self.vary(ask.replace("{keys}", ", ".join(value))), answer)

    def _key(self) -> str:
        return self.random.choice(
            "name age city country id title text value count color size answer question reason score items tags ok valid unit price "
            "date location temperature get_weather add search query a b x y first_name last_name email kind type status list number".split())

    def _value(self, depth: int):
        kind = self.random.randrange(9 if depth else 6)
        if kind <= 2:
            return self.random.choice([self.random.choice(self.words["noun"]), self.random.choice(self.words["place"]),
                                       self.random.choice(["tandem", "node", "ok", "yes", "no", "hello", "celsius", "red", "blue", "a", ""])])
        if kind == 3:
            return self.random.randrange(10 ** self.random.randint(1, 4))
        if kind == 4:
            return round(self.random.random() * 100, self.random.randint(1, 2))
        if kind == 5:
            return self.random.choice([True, False, True, False, None])
        if kind <= 7:
            return [self._value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {self._key(): self._value(depth - 1) for _ in range(self.random.randint(1, 3))}

    # ---- whole conversations

    def conversation(self, turns: int) -> Conversation:
        system = self.random.choice(self.systems) if self.random.random() < SHARE_SYSTEM else ""
        done: list[Turn] = []
        for _ in range(turns):
            kind = self.random.random()
            if done and done[-1].entry and kind < SHARE_FOLLOWUP:
                done.append(self.followup(done[-1]))
                continue
            kind = self.random.random()
            if kind < SHARE_FALLBACK:
                done.append(self.refusal())
            elif kind < SHARE_FALLBACK + SHARE_JSON:
                done.append(self.json_turn())
            else:
                done.append(self.fact())
        cut = CUT_TOKENS if self.random.random() < SHARE_CUT and not done[-1].answer.startswith("{") else 0
        return Conversation(system, done, cut)

    def conversations(self, tokens: int, length) -> list[Conversation]:
        """Conversations of together at least tokens tokens; length gives the tokens of one."""
        made, total = [], 0
        while total < tokens:
            turns = self.random.choices([1, 2, 3, 5, 14], [86, 8, 4, 1.7, 0.3])[0]
            made.append(self.conversation(turns))
            total += length(made[-1])
        return made

    # ---- how people type

    def _unseen(self, make) -> str:
        """A varied question that is not one of those held out."""
        while True:
            text = self.vary(make())
            if normal(text) not in self.held_out:
                return text

    def vary(self, text: str) -> str:
        chance = self.random.random
        if chance() < 0.12:
            for long, short in (("What is", "What's"), ("what is", "whats"), ("do not", "don't"), ("I am", "I'm"), ("does not", "doesn't"),
                                ("How do I", "how do i"), ("How do I", "How do you"), ("How do I", "How would I"), ("I get", "I'm getting")):
                if long in text and chance() < 0.5:
                    text = text.replace(long, short)
        if chance() < 0.35:
            text = self._other_words(text)
        if chance() < 0.15:
            text = self._idle_words(text)
        if chance() < 0.06:
            text = self.random.choice(["Please: ", "Hey, ", "Hi, ", "Hello, ", "Ok, ", "So, ", "A question: ", "Sorry, but ", "Quick question: ",
                                       "Hello. ", "One more: ", "I wonder: ", "Now, ", "Can you tell me: ", "Thanks. ", "Hmm. "]) + text
        if chance() < 0.3:
            text = text.lower()
        elif chance() < 0.02:
            text = text.upper()
        elif chance() < 0.1:
            text = text[:1].upper() + text[1:]
        if chance() < 0.3:
            text = text.rstrip(".?!")
        if chance() < 0.06:
            text += self.random.choice([" please", " please?", " thanks", "??", "!", " ...", " :)", " in tandem?", " Thanks!", "\n", " ", " ?"])
        if chance() < 0.08:
            text = self._typo(text)
        return text

    def _other_words(self, text: str) -> str:
        """Replaces one or two words by synonyms."""
        for _ in range(self.random.choice([1, 1, 2])):
            fitting = [(pattern, others) for pattern, others in self.synonyms if pattern.search(text)]
            if not fitting:
                break
            pattern, others = self.random.choice(fitting)
            text = pattern.sub(lambda _: self.random.choice(others), text, count=1)
        return text

    def _idle_words(self, text: str) -> str:
        """Leaves out words of little meaning, as in search boxes, or adds one."""
        words = text.split(" ")
        if self.random.random() < 0.3:
            words.insert(self.random.randrange(len(words)) + 1, self.random.choice(FILLER_WORDS))
        elif sum(w.lower() not in IDLE_WORDS for w in words) >= 2:
            share = self.random.choice([0.3, 0.6, 1.0])
            words = [w for w in words if w.lower() not in IDLE_WORDS or self.random.random() > share]
        return " ".join(words)

    def _typo(self, text: str) -> str:
        words = text.split(" ")
        long = [i for i, w in enumerate(words) if len(w) >= 4 and w.isalpha()]
        if not long:
            return text
        i = self.random.choice(long)
        w, at = words[i], self.random.randrange(1, len(words[i]) - 1)
        words[i] = self.random.choice([w[:at] + w[at + 1:], w[:at] + w[at] + w[at:], w[:at] + w[at + 1] + w[at] + w[at + 2:]])
        return " ".join(words)

    # ---- the question list

    def questions(self) -> list[dict]:
        """The check: for each topic one trained phrasing and all held-out ones, and requests to be turned down."""
        listed = []
        for entry in self.entries:
            if not entry.want:
                continue
            want = [[w.strip().lower() for w in part.split("|")] for part in entry.want.split(",")]
            if entry.ask or entry.slots:
                trained = entry.ask[0] if entry.ask else self.templates[sorted(entry.slots)[0]][0].replace("{x}", entry.slots[sorted(entry.slots)[0]][0])
                listed.append({"topic": entry.id, "question": trained, "want": want, "heldOut": False})
            for question in entry.test:
                listed.append({"topic": entry.id, "question": question, "want": want, "heldOut": True})
        turned_down = [["built-in help model"], ["tandem pull"]]
        for question in self.other[::37]:
            listed.append({"topic": "fallback", "question": question, "want": turned_down, "heldOut": False})
        for question in self.other_test:
            listed.append({"topic": "fallback", "question": question, "want": turned_down, "heldOut": True})
        return listed
