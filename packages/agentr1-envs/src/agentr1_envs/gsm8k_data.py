"""GSM8K rows: official (`question`, `answer`), prepared, and those of verl and Agent-R1; each becomes a `Task`."""

import re

from agentr1_envs.prepared_rows import gold_answers, is_prepared, question_of, row_id
from agentr1_envs.rows import Row
from agentr1_envs.tasks import Task

_GOLD = re.compile(r"#### (\-?[0-9\.\,]+)")
_NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?|-?\.[0-9]+")
_ANNOTATION = re.compile(r"<<([^<>=]+)=([^<>]*)>>")
_PERCENT = re.compile(r"([0-9.]+)%(?!\s*[0-9(])")
_TIMES = re.compile(r"(?<=[0-9.)])x(?=[0-9.(])")
_ARITHMETIC = re.compile(r"-?[0-9.(][0-9.+\-*/()]*[0-9.)]")
_CLEAN = str.maketrans({"$": "", ",": "", "×": "*", "÷": "/", "−": "-", "–": "-", " ": ""})


def read_gsm8k(row: Row, split: str) -> Task:
    """The task of one row.

    Raises:
        DataRowError: a field is missing, or the answer holds no gold number.
    """
    if is_prepared(row):
        details = row.section("extra_info")
        question = question_of(row)
        gold = gold_answers(row)[0]
        # verl and Agent-R1 keep the official solution under extra_info.answer.
        solution = details.text("solution", "") or details.text("answer", "") or f"#### {gold}"
    else:
        question, solution = row.text("question"), row.text("answer")
        found = _GOLD.search(solution)
        if found is None:
            raise row.error("answer", "needs the gold number as '#### 72', found none.")
        gold = found.group(1)
    if not _NUMBER.fullmatch(gold.strip()):
        field = "reward_model.ground_truth" if is_prepared(row) else "answer"
        raise row.error(field, f"needs a number, found {gold!r}.")
    return Task(
        task_id=row_id(row, split),
        split=split,
        question=question,
        answers=(gold.strip().replace(",", ""),),
        solution=solution,
        plan=gold_expressions(solution),
    )


def gold_expressions(solution: str) -> tuple[str, ...]:
    """The calculator expressions of a gold solution, from its ``<<16-3-4=9>>`` annotations, in order.

    Currency signs, thousands commas and blanks are taken out, "50%" becomes "(50/100)"; what is no plain arithmetic
    after that, or a lone number, is left out.
    """
    expressions: list[str] = []
    for annotated, _ in _ANNOTATION.findall(solution):
        expression = _PERCENT.sub(r"(\1/100)", _TIMES.sub("*", annotated.translate(_CLEAN)))
        if _ARITHMETIC.fullmatch(expression) and any(sign in expression[1:] for sign in "+-*/"):
            expressions.append(expression)
    return tuple(expressions)
