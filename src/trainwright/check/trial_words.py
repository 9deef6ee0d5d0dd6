"""The words by which a file says that its run is a trial: it looks for an error, measures or tries something, and
trains nothing that anybody keeps."""

from __future__ import annotations

import re

_WORDS = (
    r"debug\w*|smoke|sanity|profil(es?|ed|ers?|ing)|bench(mark\w*)?|repro|dry[-_ ]?run|speed[-_ ]?tests?|mock"
    r"|throughput[-_ ]?(tests?|runs?|checks?|measurements?)"
)
# Words that say it in a name, and much else in a sentence: `the dev split`.
_IN_NAMES = r"tests?|trial|dev|devel|toy|throughput"
_IN_SENTENCES = (
    r"(quick|test|trial) (test|run|check|job|script)s?|test(s|ing)? (of|for|the|whether)"
    r"|(measur|test)\w* (the )?throughput"
    r"|reproduc\w+ (of )?(the |an? )?\w* ?(bug|error|issue|hang|crash|problem|#\d)\w*"
)
NAME = re.compile(rf"(?<![a-z])({_WORDS}|{_IN_NAMES})(?![a-z])", re.IGNORECASE)
SENTENCE = re.compile(rf"(?<![a-z])({_WORDS}|{_IN_SENTENCES})(?![a-z])", re.IGNORECASE)
