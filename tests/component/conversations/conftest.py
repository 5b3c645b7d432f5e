from tests.component.memory.conftest import _these_files_need_not_survive_the_machine

__all__ = ["_these_files_need_not_survive_the_machine"]
