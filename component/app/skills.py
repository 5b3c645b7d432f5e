"""The skills that a service would offer, for commands that list or check them."""

from itertools import chain

from component.app.features import make_features
from component.kernel.options import make_registry
from component.settings import Settings
from component.skills import Registry


def load_skills(settings: Settings) -> Registry:
    """Return the skills that the settings offer. Some cannot be called, because no
    service runs.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    features = make_features(settings)
    return make_registry(settings, chain.from_iterable(each.skills() for each in features))
