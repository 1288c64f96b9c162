"""The attack report in the JSON form of SACRO-ML 2.0 (github.com/AI-SDC/SACRO-ML).

It is what reviewers of research environments read. Each attack is one entry, `NAME_ID`, with
`metadata` and `attack_experiment_logger.attack_instance_logger.instance_0`. The figures have the
names and definitions of `sacroml/metrics.py`. Curves are left out, as SACRO-ML itself does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.attacks.attack_report import AttackReport
from tacit.attacks.measured import ScoreVector
from tacit.attacks.membership_attacks import MembershipScores

_IDS = uuid.UUID("5f0d6b0e-6c7e-5d0a-9a51-0b1f3c9a7a52")  # the names' space of log ids
_PERCENTS = (0.5, 0.2, 0.1, 0.01, 0.001, 1e-05)  # of false alarms
_SHARES = {"01": 0.1, "02": 0.2, "001": 0.01}  # of records, by the suffix of FMAX, FMIN, …
_LEAST_P = 1e-50
_SIGNIFICANT = 0.05
_NAMES = {"likelihood ratio": "LiRA Attack", "loss": "Loss attack"}
SacroMetrics = dict[str, float | int]


def sacro_form(report: AttackReport, scores: Iterable[MembershipScores]) -> dict[str, Any]:
    """Return the document, a function of the report and the attacks' scores alone."""
    entries = {}
    for each in scores:
        name = _NAMES.get(each.name, f"{each.name.capitalize()} attack")
        log_id = str(uuid.uuid5(_IDS, f"{report.model_sha256} {report.at} {each.name}"))
        metrics = metrics_of(each.members, each.others)
        entries[f"{name}_{log_id}"] = {
            "log_id": log_id,
            "log_time": "/".join(reversed(report.at.split("-"))) + " 00:00:00",
            "metadata": _metadata(report, each, name, metrics),
            "attack_experiment_logger": {"attack_instance_logger": {"instance_0": metrics}},
        }
    return entries


def _metadata(
    report: AttackReport, scores: MembershipScores, name: str, metrics: SacroMetrics
) -> dict[str, Any]:
    params: dict[str, Any] = {"p_thresh": _SIGNIFICANT, "rows": report.rows}
    if scores.name == "likelihood ratio":
        params |= {
            "n_shadow_models": report.shadows, "mode": "online-carlini", "fix_variance": True,
        }  # fmt: skip
    spread = 3 * _null_deviation(len(scores.members), len(scores.others))
    return {
        "attack_name": name,
        "attack_params": params,
        "global_metrics": {
            "AUC_sig": _words(float(metrics["P_HIGHER_AUC"])),
            "PDIF_sig": _words(float(np.exp(-metrics["PDIF01"]))),
            "null_auc_3sd_range": f"{0.5 - spread} -> {0.5 + spread}",
        },
        "target_model": f"tacit {report.tacit_version} {report.model_sha256} ({report.trained})",
        "target_train_params": {"epsilon": report.epsilon, "delta": report.delta},
    }


def _words(chance: float) -> str:
    return f"{'S' if chance <= _SIGNIFICANT else 'Not s'}ignificant at p={_SIGNIFICANT}"


def metrics_of(members: ScoreVector, others: ScoreVector) -> SacroMetrics:
    """Return SACRO-ML's metrics. A record is called a member where its score is above the median.

    SACRO-ML's own scores are chances, which it parts at a half. These have no such place.
    """
    truth = np.concatenate((np.ones(len(members)), np.zeros(len(others))))
    scores = np.concatenate((members, others))
    above = scores > np.median(scores)
    tp, fp = int(above[: len(members)].sum()), int(above[len(members) :].sum())
    fn, tn = len(members) - tp, len(others) - fp
    ranks = stats.rankdata(scores)[: len(members)].sum()
    auc = float(ranks - len(members) * (len(members) + 1) / 2) / (len(members) * len(others))
    hits, alarms = _share(tp, tp + fn), _share(fp, fp + tn)
    precision = _share(tp, tp + fp)
    metrics: SacroMetrics = {
        "TPR": hits,
        "FPR": alarms,
        "FAR": _share(fp, fp + tp),
        "TNR": _share(tn, tn + fp),
        "PPV": precision,
        "NPV": _share(tn, tn + fn),
        "FNR": _share(fn, tp + fn),
        "ACC": _share(tp + tn, len(truth)),
        "F1score": 2 * precision * hits / (precision + hits) if precision + hits else 0.0,
        "Advantage": abs(hits - alarms),
        "AUC": auc,
        "P_HIGHER_AUC": float(stats.norm.sf(auc, 0.5, _null_deviation(len(members), len(others)))),
    }
    for suffix, share in _SHARES.items():
        metrics |= _extremes(truth, scores, share, suffix)
    metrics |= {f"TPR@{percent:g}%": _hits_at(members, others, percent) for percent in _PERCENTS}
    metrics |= {"n_pos_test_examples": len(members), "n_neg_test_examples": len(others)}
    return metrics


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _null_deviation(members: int, others: int) -> float:
    """Return the deviation of an AUC that tells nothing (Mohri, NIPS 2003)."""
    return float(np.sqrt((0.25 + (members + others - 2) / 12) / (members * others)))


def _extremes(
    truth: npt.NDArray[np.float64], scores: ScoreVector, share: float, suffix: str
) -> SacroMetrics:
    """Return members' share among the highest and the lowest scores, and the difference's -ln p."""
    count = int(np.ceil(len(truth) * share))
    order = np.argsort(scores, kind="stable")
    highest, lowest = float(truth[order[-count:]].mean()), float(truth[order[:count]].mean())
    mean = float(truth.mean())
    chance = float(stats.norm.sf(highest - lowest, 0, np.sqrt(2 * mean * (1 - mean) / count)))
    return {
        f"FMAX{suffix}": highest,
        f"FMIN{suffix}": lowest,
        f"FDIF{suffix}": highest - lowest,
        f"PDIF{suffix}": -float(np.log(max(chance, _LEAST_P))),
    }


def _hits_at(members: ScoreVector, others: ScoreVector, percent: float) -> float:
    """Return the hits at `percent` of false alarms, between places of the curve in proportion."""
    thresholds = np.unique(np.concatenate((members, others)))[::-1]
    hits = 1 - np.searchsorted(np.sort(members), thresholds, "left") / len(members)
    alarms = 1 - np.searchsorted(np.sort(others), thresholds, "left") / len(others)
    return float(np.interp(percent / 100, np.append(0.0, alarms), np.append(0.0, hits)))
