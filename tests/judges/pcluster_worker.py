"""Runs inside ParallelCluster's own virtual environment: reads one request a line (JSON: name, region, config), answers
with the messages that `pcluster create-cluster --dryrun true` would give, or `build-image` for a file with a Build
section. One process for many files."""

from __future__ import annotations

import json
import logging
import os
import sys


def messages(name: str, region: str, config: str, fresh: bool) -> list[dict[str, str]]:
    from pcluster.aws.aws_api import AWSApi
    from pcluster.aws.common import Cache
    from pcluster.models.cluster import Cluster, ConfigValidationError
    from pcluster.models.imagebuilder import ImageBuilder, ImageBuilderActionError
    from pcluster.validators.common import FailureLevel

    if fresh or os.environ.get("AWS_DEFAULT_REGION") != region:
        # ParallelCluster remembers what AWS answered; keep that as long as nothing was made since.
        os.environ["AWS_DEFAULT_REGION"] = region
        AWSApi.reset()
        Cache.clear_all()
    try:
        is_image = any(line.startswith("Build:") for line in config.splitlines())
        asked = ImageBuilder(image_id=name, config=config) if is_image else Cluster(name, config)
        results = asked.validate_create_request(None, FailureLevel.ERROR)
    except (ConfigValidationError, ImageBuilderActionError) as error:
        results = error.validation_failures
        if not results:
            return [{"level": "ERROR", "validator": "ConfigSchemaValidator", "text": str(error)}]
    except Exception as error:
        return [{"level": "ERROR", "validator": type(error).__name__, "text": str(error)}]
    return [{"level": f.level.name, "validator": f.validator_type, "text": f.message} for f in results]


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not disturb the answers
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(messages(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
