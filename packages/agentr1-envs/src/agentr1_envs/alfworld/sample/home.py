"""What a home is made of, and how one becomes a problem in PDDL. Names only; no state, no chance."""

from dataclasses import dataclass

WITH_DOOR = frozenset({"cabinet", "drawer", "fridge", "microwave"})
STATIONS = {"sink": "washes", "microwave": "warms", "fridge": "chills"}

_SURFACES = ("countertop", "diningtable", "sidetable", "desk", "shelf", "coffeetable", "dresser")
_KITCHEN = ("countertop", "diningtable", "fridge", "sink", "garbagecan")
_BATH = ("countertop", "cabinet", "drawer", "toilet", "shelf", "garbagecan")

THINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "apple": ("washable warmable chillable cuttable portable", (*_KITCHEN, "microwave")),
    "tomato": ("washable warmable chillable cuttable portable", (*_KITCHEN, "microwave")),
    "potato": ("washable warmable chillable cuttable portable", (*_KITCHEN, "microwave")),
    "lettuce": ("washable chillable cuttable portable", _KITCHEN),
    "egg": ("washable warmable chillable portable", (*_KITCHEN, "microwave")),
    "bread": ("warmable chillable cuttable portable", ("countertop", "diningtable", "fridge", "microwave")),
    "mug": ("washable warmable chillable portable", (*_SURFACES, "cabinet", "sink", "fridge", "microwave")),
    "plate": ("washable warmable chillable portable", (*_SURFACES, "cabinet", "sink", "fridge", "microwave")),
    "bowl": ("washable chillable portable", (*_SURFACES, "cabinet", "sink", "fridge")),
    "pan": ("washable chillable portable", ("countertop", "stoveburner", "sink", "cabinet")),
    "fork": ("washable portable", ("drawer", "countertop", "diningtable", "sink")),
    "knife": ("washable blade portable", ("drawer", "countertop", "diningtable", "sink")),
    "soapbar": ("washable portable", (*_BATH, "sink")),
    "cloth": ("washable portable", (*_BATH, "sink", "sidetable", "dresser")),
    "toiletpaper": ("portable", (*_BATH, "cabinet")),
    "candle": ("portable", (*_SURFACES, *_BATH)),
    "book": ("portable", (*_SURFACES, "bed", "sofa", "drawer")),
    "pencil": ("portable", (*_SURFACES, "drawer", "garbagecan")),
    "cellphone": ("portable", (*_SURFACES, "bed", "sofa", "drawer")),
    "pillow": ("portable", ("bed", "sofa", "armchair")),
    "remotecontrol": ("portable", (*_SURFACES, "sofa", "armchair", "drawer")),
    "keychain": ("portable", (*_SURFACES, "sofa", "armchair", "drawer")),
    "newspaper": ("portable", (*_SURFACES, "sofa", "armchair", "bed", "drawer")),
    "desklamp": ("lamp", ("desk", "sidetable", "dresser")),
}
"""Kind to its properties and the kinds of furniture it fits in or on."""


@dataclass(frozen=True, slots=True)
class Home:
    """Furniture, and things that lie in or on it; each by an id such as ``mug_bar_2``."""

    furniture: tuple[str, ...]
    things: tuple[tuple[str, str], ...]
    """(thing, furniture)."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached; `target` is a kind of furniture, or a lamp for the task with light."""

    task_type: str
    thing: str
    target: str


_STATES = {
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "hot",
    "pick_cool_then_place_in_recep": "cold",
}

WORDS: dict[str, tuple[str, ...]] = {
    "pick_and_place_simple": ("put one {thing} on the {target}", "bring a {thing} to the {target}"),
    "look_at_obj_in_light": ("look at the {thing} by the light of the {target}", "hold the {thing} near the {target}"),
    "pick_clean_then_place_in_recep": (
        "wash a {thing} and leave it in the {target}",
        "bring a clean {thing} to the {target}",
    ),
    "pick_heat_then_place_in_recep": (
        "warm a {thing} and leave it in the {target}",
        "bring a hot {thing} to the {target}",
    ),
    "pick_cool_then_place_in_recep": (
        "chill a {thing} and leave it in the {target}",
        "bring a cold {thing} to the {target}",
    ),
    "pick_two_obj_and_place": ("gather two {thing} in the {target}", "bring both {thing} to the {target}"),
}
"""How the goal of a task type is put: first the template, then what a person might say."""


def piece_id(kind: str, number: int) -> str:
    """The id of a piece of furniture; the engine makes "sinkbasin" of a sink with a basin, as in the official games."""
    return f"{kind}_bar_{number}_basin" if kind == "sink" else f"{kind}_bar_{number}"


def kind_of(thing: str) -> str:
    """``mug_bar_2`` is a "mug"."""
    return thing.partition("_bar_")[0]


def goal_words(goal: Goal) -> tuple[str, ...]:
    """The template goal, then the others."""
    target = "sinkbasin" if goal.target == "sink" else goal.target
    return tuple(words.format(thing=goal.thing, target=target) for words in WORDS[goal.task_type])


def problem_text(name: str, home: Home, goal: Goal) -> str:
    """The problem in PDDL."""
    kinds = sorted({kind_of(thing) for thing, _ in home.things})
    rooms = sorted({kind_of(piece) for piece in home.furniture})
    objects = ["you - person", "middle - place"]
    facts = ["(at you middle)"]
    for piece in home.furniture:
        objects += [f"{piece} - furniture", f"by_{piece} - place"]
        facts += [f"(stands {piece} by_{piece})", f"(isfurniture {piece} {kind_of(piece)}_f)"]
        facts += [f"(door {piece})"] if kind_of(piece) in WITH_DOOR else []
    for thing, piece in home.things:
        objects.append(f"{thing} - thing")
        facts += [f"(lies {thing} {piece})", f"(iskind {thing} {kind_of(thing)}_t)"]
        facts += [f"({property} {thing})" for property in THINGS[kind_of(thing)][0].split()]
    for kind in kinds:
        objects.append(f"{kind}_t - tkind")
        facts += [f"(fits {kind}_t {room}_f)" for room in THINGS[kind][1] if room in rooms]
    for room in rooms:
        objects.append(f"{room}_f - fkind")
        facts += [f"({STATIONS[room]} {room}_f)"] if room in STATIONS else []
    lines = [f"(define (problem {name})", "(:domain household)", "(:objects", *objects, ")", "(:init", *facts, ")"]
    return "\n".join([*lines, f"(:goal {goal_text(goal)})", ")"])


def goal_text(goal: Goal) -> str:
    """The goal in PDDL."""
    thing, target = f"{goal.thing}_t", f"{goal.target}_f"
    if goal.task_type == "look_at_obj_in_light":
        light = f"(exists (?l - thing ?f - furniture ?s - place ?p - person) (and (iskind ?l {goal.target}_t) (lit ?l) "
        light += "(lies ?l ?f) (stands ?f ?s) (at ?p ?s)))"
        return f"(and {light} (exists (?t - thing ?p - person) (and (iskind ?t {thing}) (carries ?p ?t))))"
    there = f"(iskind ?t {thing}) (lies ?t ?f) (isfurniture ?f {target})"
    if goal.task_type == "pick_two_obj_and_place":
        second = f"(exists (?u - thing) (and (not (= ?t ?u)) (iskind ?u {thing}) (lies ?u ?f)))"
        return f"(exists (?f - furniture ?t - thing) (and {there} {second}))"
    state = f" ({_STATES[goal.task_type]} ?t)" if goal.task_type in _STATES else ""
    return f"(exists (?f - furniture ?t - thing) (and {there}{state}))"
