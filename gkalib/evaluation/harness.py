"""Our models under the lm-evaluation-harness, so that its tasks, prompts and metrics can be asked of them."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, final

import torch

from gkalib.data.tokenizers import Tokenizer
from gkalib.evaluation.metrics import device_of, evaluating
from gkalib.evaluation.scorer import context_of, score
from gkalib.evaluation.tasks import Row
from gkalib.extras import require


def harness(model: Any, tokenizer: Tokenizer) -> Any:
    """A model of text as the harness takes one: ``lm_eval.simple_evaluate(harness(model, tokenizer), ...)``.

    The harness splits its requests into tokens by its own rule; what is told of them are our scorer's
    likelihoods. ``bos``, if the tokenizer has one, stands before every text.

    Args:
        model: a decoder of ``gkalib.models``; what it writes comes from its cache.
        tokenizer: the one it was trained with.

    Raises:
        ValueError: if the harness is not installed, or a task asks for text that is drawn at random.

    References:
        Gao et al., The language model evaluation harness, EleutherAI, version 0.4. Chapter 24 compares it
        with our scorer.
    """
    api, utils = require("lm_eval.api.model", "the harness"), require("lm_eval.utils", "the harness")

    @final
    class Harness(api.TemplateLM):
        """The harness's view of the model."""

        @property
        def eot_token_id(self) -> int:
            return 0 if tokenizer.bos is None else tokenizer.bos

        @property
        def tokenizer_name(self) -> str:
            return tokenizer.name

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
            first = [] if tokenizer.bos is None or add_special_tokens is False else [tokenizer.bos]
            return [*first, *map(int, tokenizer.encode(string))]

        def _loglikelihood_tokens(self, requests: list, **_: Any) -> list[tuple[float, bool]]:
            sequences = [
                Row([*context, *continuation], len(context), len(context))
                for _, context, continuation in requests
            ]
            return [(each.total, each.greedy) for each in score(model, sequences)]

        def loglikelihood_rolling(self, requests: Sequence, disable_tqdm: bool = False) -> list[float]:
            totals = []
            for request in requests:
                ids = self.tok_encode(request.args[0], add_special_tokens=False)
                windows = utils.get_rolling_token_windows(ids, self.prefix_token_id, context_of(model), 1)
                pairs = [("", *utils.make_disjoint_window(window)) for window in windows]
                totals.append(sum(total for total, _ in self._loglikelihood_tokens(pairs)))
            return totals

        def generate_until(self, requests: Sequence, disable_tqdm: bool = False) -> list[str]:
            return [self._generate(*request.args) for request in requests]

        def _generate(self, context: str, settings: dict) -> str:
            """What the model goes on with, most probable token by token, up to one of the words ``until``."""
            if settings.get("do_sample"):
                raise ValueError("evaluate: text is written most probable token by token, not drawn")
            stops = settings.get("until") or []
            stops = [stops] if isinstance(stops, str) else stops
            ids = (self.tok_encode(context) or [self.eot_token_id])[-context_of(model) :]
            given, written = torch.tensor([ids], device=device_of(model)), []
            with evaluating(model):
                new = model.stream(given, temperature=0.0)
                for number in islice(new, int(settings.get("max_gen_toks", 256))):
                    written.append(int(number))
                    text = tokenizer.decode(written)
                    if places := [text.index(stop) for stop in stops if stop in text]:
                        return text[: min(places)]
            return tokenizer.decode(written)

    return Harness()
