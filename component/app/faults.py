"""What is wrong with a configuration, or keeps the service from starting, in sentences."""

from collections.abc import Iterator, Sequence


def config_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors in a configuration."""
    # Imported where something is wrong.
    from component.agent.untrusted_text import ScannerError  # noqa: PLC0415
    from component.config import SettingsError  # noqa: PLC0415
    from component.features.feature import FeatureError  # noqa: PLC0415
    from component.kernel.avatars import AvatarError  # noqa: PLC0415
    from component.models.protocol import ModelRefusedError  # noqa: PLC0415
    from component.policy import PolicyError  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415

    return (
        AvatarError,
        DuplicateSkillError,
        FeatureError,
        ModelRefusedError,
        PolicyError,
        ScannerError,
        SettingsError,
        SkillLoadError,
    )


def sentences(error: BaseException) -> Sequence[str]:
    """Return what an error, or each error of a group, says: one line for each mistake."""
    return [line for one in leaves(error) for line in str(one).splitlines()]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, and of the groups in it; or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
