"""How Sphinx builds the site: offline, equations as MathML, nothing fetched by a reader's browser."""

import inspect
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import pending_xref
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import partialbayes as pb  # noqa: E402

project = "partialbayes"
author = "The partialbayes authors"
copyright = "the partialbayes authors"
version = release = pb.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "py:obj"  # `fit` in a docstring is a link

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests run every code block; see tests/test_guides.py
nb_ipywidgets_js = {}  # would come from elsewhere

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: f"partialbayes.types.{name}"
    for name in (
        "Info",
        "LogDensity",
        "PRNGKey",
        "Phi",
        "PriorBuilder",
        "Report",
        "Resampler",
        "Sampler",
        "Scalar",
    )
}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "partialbayes"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system has it
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_math_renderer = "mathml"
html_sidebars = {"*": []}  # pages of the first level have nothing beneath them
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "partialbayes"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "header_links_before_dropdown": 5,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}


def mathml(text, **settings):
    """An equation as MathML, which browsers draw without a script, with space around log and its kin."""
    found = tex2mathml(text, **settings)
    return re.sub(
        r"<mi>(\w+)</mi>\s*<mo>&ApplyFunction;</mo>",
        r'<mspace width="0.17em"/><mi>\1</mi><mspace width="0.17em"/>',
        found,
    )


def inline_math(self, node):
    """An equation in a sentence."""
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def display_math(self, node):
    """An equation on a line of its own."""
    self.body.append('<div class="equation-line">')
    self.body.append(mathml(node.astext(), as_block=True))
    self.body.append("</div>")
    raise nodes.SkipNode


def equations_stay_as_they_are(app, what, name, obj, options, lines):
    """In a module's docstring an indented block is an equation: keep its lines and its columns."""
    if what != "module":
        return
    written, inside = [], False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and written[-1] != "Example:":
            written += [".. code-block:: text", "   :class: equation", ""]
        inside = indented or (inside and not line.strip())
        written.append(line)
    lines[:] = written


IMPORT_RULE = re.compile(r"\s*[^.]*\bmay import\b[^.]*\.")


def import_rules_are_for_contributors(app, what, name, obj, options, lines):
    """What a room may import (see CONTRIBUTING.md) is of no use to a reader of its page."""
    if what == "module":
        lines[:] = IMPORT_RULE.sub("", "\n".join(lines)).split("\n")


def bars_are_bars(app, what, name, obj, options, lines):
    """``p(y | φ)`` and ``|φ − φ'|²`` are no substitutions."""
    for index, line in enumerate(lines):
        equation = what == "module" and line.startswith("    ")
        if "|" in line and not equation and not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")  # every second one is literal
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[index] = "``".join(parts)


ALIAS = re.compile(
    r"TypeAliasForwardRef\('(?:partialbayes\.types\.)?(\w+)'\)|partialbayes\.(?:types|results)\.(?=\w)"
)
DEFAULT = re.compile(r"<function \S+?<lambda>>")


def plain_signature(app, what, name, obj, options, signature, returns):
    """Types by the names a reader writes."""

    def plain(text):
        return text and DEFAULT.sub("...", ALIAS.sub(lambda found: found[1] or "", text))

    return plain(signature), plain(returns)


def plain_arrays(app, tree):
    """An array is an ``Array``, wherever JAX keeps its class."""
    for text in list(tree.findall(nodes.Text)):
        if "jaxlib._jax." in text:
            text.parent.replace(text, nodes.Text(re.sub(r"(?:jax\.)?jaxlib\._jax\.", "", text)))


def public_names():
    """What may be linked: every public name, alone where that says which, and after its family."""
    alone = []
    for name in pb.__all__:
        member = getattr(pb, name)
        if inspect.ismodule(member):
            inner = member.__all__
            alone += [one for one in inner if one not in pb.__all__]
            yield from (f"{name}.{one}" for one in inner)
        else:
            yield name
    yield from (name for name in alone if alone.count(name) == 1)


NAMES = set(public_names())
SPAN = re.compile(r"(?:pb\.)?([A-Za-z_][\w.]*)(?:\(.*\))?")


def link_code(app, tree):
    """A public name in a code span, `fit` or `kernels.from_mcmc(...)`, is a link to its entry."""
    for literal in list(tree.findall(nodes.literal)):
        found = SPAN.fullmatch(literal.astext())
        if (
            not found
            or found[1] not in NAMES
            or isinstance(literal.parent, nodes.reference | pending_xref)
        ):
            continue
        link = pending_xref(
            "",
            literal.deepcopy(),
            refdomain="py",
            reftype="obj",
            reftarget=found[1],
            refdoc=app.env.docname,
            refwarn=False,
        )
        literal.replace_self(link)


def find_by_last_part(app, env, node, contnode):
    """`fit`, `likelihoods.custom` or ``pb.fit`` in text: look for the one name that ends so."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("pb.").removeprefix("partialbayes.")
    domain = env.get_domain("py")
    found = [name for name in domain.objects if name == target or name.endswith(f".{target}")]
    if not found:
        return None
    page = node["refdoc"].split("/")[-1]  # `laplace` on the page of samplers is theirs
    found.sort(key=lambda name: (page not in name, name.count(".")))
    entry = domain.objects[found[0]]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, found[0])


def setup(app):
    """What the settings above cannot say."""
    app.add_html_math_renderer("mathml", (inline_math, None), (display_math, None))
    app.connect("autodoc-process-docstring", equations_stay_as_they_are, priority=400)
    app.connect("autodoc-process-docstring", import_rules_are_for_contributors, priority=300)
    app.connect("autodoc-process-docstring", bars_are_bars, priority=900)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("doctree-read", plain_arrays)
    app.connect("doctree-read", link_code)
    app.connect("missing-reference", find_by_last_part)
