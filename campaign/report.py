"""stub"""

import json


def write(result, analysis, out):
    page = out / "campaign-report.html"
    page.write_text("")
    page.with_suffix(".json").write_text(json.dumps(result.document(), indent=1))
    return page
