"""Makes what people who were never born write to a practice: train.csv (private), public.csv.

And vocabulary.json: a tokenizer's file, from the public pages that Python brings along.
"""

import csv
import random
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
WORDS = 1_500  # and pieces of words
HELLO = ("hello", "good morning", "dear team", "hi there", "sorry to bother you", "dear dr lee")
BYE = ("thank you", "many thanks", "please call me back", "kind regards", "thanks for your help")
TALK = (
    "i have tried to phone you all morning",
    "my {who} asked me to write to you",
    "i have been a patient here for {count} years",
    "the waiting room was very full last {day}",
    "i am at work until {count} so please write",
    "my {who} has had {ill} since {day}",
)
# What anybody reads on the practice's own page: its words are public.
PAGE = """
Welcome to our practice. Please call us in the morning to make an appointment with a doctor, or to
cancel or move one. Our waiting room is open Monday to Friday from nine to five. If you have a
fever, a cough, a rash or pain, please say so when you phone. You can ask for a repeat prescription
of your pills, drops or insulin here: we send it to your pharmacy. Results of a blood test, a urine
sample, an x ray or a scan come back from the hospital after two to four days, and the doctor will
call you if there is anything to worry about. You may have a copy. For an invoice, a bill, a receipt
or a reminder, and for what your insurance will pay, please write to billing. Thank you, and kind
regards.
"""
DESKS = {
    "appointment": (
        "could i come in on {day} instead of {day}",
        "i need to see the doctor about my {ill}",
        "is there a free slot on {day} at {count}",
        "i have to cancel my visit on {day}",
        "my {who} would like to be seen this week",
        "how long is the wait for a check up",
    ),
    "prescription": (
        "i have run out of my {drug}",
        "could you renew my {drug} please",
        "the pharmacy says that my {drug} has not been sent",
        "may i take {drug} together with {drug}",
        "{drug} give me {ill} so i stopped taking it",
        "i lost the slip for my {drug}",
    ),
    "results": (
        "has the {test} from {day} come back yet",
        "what does the value in my {test} mean",
        "the hospital wanted to send you my {test}",
        "i would like a copy of the {test}",
        "should i be worried about the {test}",
        "somebody rang me about my {who} and the {test}",
    ),
    "billing": (
        "i was charged twice for the visit on {day}",
        "my insurance does not pay for the {test}",
        "the invoice of {day} has the wrong address",
        "i paid {count} euros and got a reminder",
        "can i pay the bill in {count} parts",
        "please send the receipt to my {who}",
    ),
}
WORD = {
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
    "who": ("wife", "husband", "mother", "father", "son", "daughter", "neighbour"),
    "ill": ("a headache", "back pain", "a rash", "a cough", "fever", "dizziness", "a sore knee"),
    "drug": ("ibuprofen", "metformin", "insulin", "blood pressure pills", "eye drops", "statins"),
    "test": ("blood test", "x ray", "scan", "urine sample", "heart trace", "allergy test"),
    "count": ("two", "three", "four", "five", "nine", "ten"),
}


def filled(pattern: str, chance: random.Random) -> str:
    """The sentence, with a word in each gap; now and then with a slip of the keys."""
    letters = list(
        " ".join(
            chance.choice(WORD[part[1:-1]]) if part.startswith("{") else part
            for part in pattern.split()
        )
    )
    if chance.random() < 0.3:
        at = chance.randrange(len(letters) - 1)
        letters[at : at + 2] = letters[at + 1], letters[at]
    return "".join(letters)


def message(chance: random.Random) -> tuple[str, str]:
    """What somebody writes, and the desk that answered; a few were sent to any."""
    desk = chance.choice([*DESKS])
    parts = [filled(part, chance) for part in chance.sample(DESKS[desk], chance.randint(1, 2))]
    parts += [filled(part, chance) for part in chance.sample(TALK, chance.randint(0, 2))]
    if chance.random() < 0.15:
        parts.append(filled(chance.choice(DESKS[chance.choice([*DESKS])]), chance))
    chance.shuffle(parts)
    text = ". ".join((chance.choice(HELLO), *parts, chance.choice(BYE)))
    return text, desk if chance.random() < 0.95 else chance.choice([*DESKS])


def write(path: Path, people: range, seed: int) -> None:
    """A CSV of what these people wrote, one to four messages each."""
    chance = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["patient", "message", "desk"])
        for number in people:
            for _ in range(chance.randint(1, 4)):
                table.writerow([f"p{number}", *message(chance)])


def tokenizer(texts: list[str]) -> Tokenizer:
    """Words, and pieces of words, as these texts have them: any other word is made of pieces."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    every_letter = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=["[PAD]"],
        initial_alphabet=every_letter,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


pages = [topics[name] for name in sorted(topics)]
tokenizer([*pages, *50 * [PAGE]]).save(str(HERE / "vocabulary.json"))
write(HERE / "train.csv", range(4_000), seed=1)
write(HERE / "public.csv", range(4_000, 4_500), seed=2)
