"""A light reader of C++ sources: includes, functions with their length, parameters and access, and classes with their data
members and virtual functions. No preprocessor, no types: it finds function bodies and declarations at namespace and class
scope by their brackets. Lambdas and local classes count as part of the function around them."""
import dataclasses
import re

KEYWORDS_WITH_PARENTHESES = {"alignas", "__attribute__", "decltype", "noexcept", "requires", "explicit", "throw", "__launch_bounds__", "asm"}
NO_DATA = {"static", "enum", "struct", "class", "union", "using", "typedef", "static_assert", "friend"}
NOT_DECLARATIONS = {"using", "typedef", "static_assert", "friend", "namespace", "return"}
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|&&|\S")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|(?:\b(?:u8|[uUL]))?"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'", re.S)


@dataclasses.dataclass
class Function:
    name: str
    line: int              # first line of the signature
    last_line: int         # of the body; equals `line` for a declaration
    parameters: list       # one string per parameter
    has_body: bool
    public: bool           # not in a private or protected section of a class
    constructor: bool

    @property
    def lines(self):
        return self.last_line - self.line + 1


@dataclasses.dataclass
class Class:
    name: str
    kind: str              # class, struct or union
    line: int
    members: list = dataclasses.field(default_factory=list)   # (type, name, public) of each data member that is not static
    virtuals: list = dataclasses.field(default_factory=list)  # names of the functions that are declared virtual here, without the destructor
    is_polymorphic: bool = False                              # has a virtual destructor, or virtual functions of its own or of a base

    @property
    def is_plain(self):
        """A struct of values: all its data is public, and no function is virtual."""
        return self.kind != "class" and not self.is_polymorphic and all(public for _, _, public in self.members)


def without_literals(text, keep_strings=False):
    """The text with comments removed and strings emptied; line numbers stay."""
    def replace(match):
        found = match.group(0)
        if keep_strings and not found.startswith("/"):
            return found
        lines = "\n" * found.count("\n")
        return lines if found.startswith("/") else '""' + lines
    return LITERAL.sub(replace, text)


def string_literals(text):
    """(line, contents) of each string literal that is not an include."""
    for match in LITERAL.finditer(text):
        found = match.group(0)
        if '"' not in found or found[0] in "/'":
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        if text[start:match.start()].lstrip().startswith("#"):
            continue
        contents = found[found.index("(") + 1:found.rindex(")")] if match.group("mark") is not None else found[found.index('"') + 1:-1]
        yield text.count("\n", 0, match.start()) + 1, contents


def comments_of(text):
    """(line, words) of each comment; comment lines below each other are one. Words are without the marks of a comment."""
    out, last, line, at = [], (-1, None), 1, 0   # last: (line, column) where the comment before this one ended and began
    for match in LITERAL.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found = match.group(0)
        if not found.startswith(("//", "/*")):
            continue
        begin = text.rfind("\n", 0, at) + 1
        column, own_line = at - begin, not text[begin:at].strip()
        words = " ".join(re.sub(r"^//[/!]?<?|^/\*+<?|\*/$|(?m:^\s*\*(?!/))", "", found).split())
        if own_line and found.startswith("//") and last == (line - 1, column):
            out[-1] = (out[-1][0], f"{out[-1][1]} {words}".strip())
        else:
            out.append((line, words))
        last = (line, column if found.startswith("//") else None)
    return out


def without_directives(text, branches):
    """The text without preprocessor lines; with branches == "first", also without the text of #else and #elif branches."""
    out, skipping = [], []
    continued = False
    for line in text.split("\n"):
        words = line.split()
        if continued or line.lstrip().startswith("#"):
            continued = line.rstrip().endswith("\\")
            word = line.lstrip()[1:].split() if line.lstrip().startswith("#") else []
            if word and word[0].startswith("if"):
                skipping.append(False)
            elif word and word[0] in ("else", "elif") and skipping:
                skipping[-1] = branches == "first"
            elif word and word[0] == "endif" and skipping:
                skipping.pop()
            out.append("")
            continue
        out.append("" if any(skipping) or not words else line)
    return "\n".join(out)


def tokens_of(text):
    line, at, out = 1, 0, []
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        out.append((match.group(0), line))
    return out


class Reader:
    """Walks the tokens of a file and collects its functions and classes."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.functions = []
        self.classes = []
        self.open_classes = []   # the classes around the token that is read, innermost last
        self.balanced = True

    def match(self, at, opening, closing):
        """Index of the bracket that closes the one at `at`."""
        depth = 0
        for i in range(at, len(self.tokens)):
            token = self.tokens[i][0]
            if token == opening:
                depth += 1
            elif token == closing:
                depth -= 1
                if depth == 0:
                    return i
        self.balanced = False
        return len(self.tokens) - 1

    def match_angle(self, at):
        """Index of the > that closes the < at `at`, or None where it is a comparison."""
        depth, nesting = 0, 0
        for i in range(at, min(at + 400, len(self.tokens))):
            token = self.tokens[i][0]
            if token in "([":
                nesting += 1
            elif token in ")]":
                nesting -= 1
                if nesting < 0:
                    return None
            elif nesting == 0 and token == "<":
                depth += 1
            elif nesting == 0 and token == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif token in "{};" and nesting == 0:
                return None
        return None

    def scope(self, at, name, public):
        """Reads declarations until the closing brace of the scope; returns its index."""
        class_scope = name is not None
        while at < len(self.tokens):
            token = self.tokens[at][0]
            if token == "}":
                return at
            if token == ";":
                at += 1
            elif class_scope and token in ("public", "private", "protected") and self.tokens[at + 1][0] == ":":
                public = token == "public"
                at += 2
            else:
                at = self.declaration(at, name, public)
        return at

    def head(self, at):
        """Reads to the end of a declaration's head: (index of its ; or {, parenthesis groups, top-level tokens).
        A top-level token is (text, index); groups are (open, close) indexes of top-level parentheses."""
        groups, top = [], []
        initializers = False
        while at < len(self.tokens):
            token = self.tokens[at][0]
            if token in (";", "}"):
                return at, groups, top
            if token == "(":
                close = self.match(at, "(", ")")
                if top and top[-1][0] in KEYWORDS_WITH_PARENTHESES:
                    top.pop()
                elif not initializers:
                    if top and top[-1][0] == "operator" and close == at + 1:
                        top.append(("()", at))  # operator()
                    else:
                        groups.append((at, close))
                        top.append(("(...)", at))
                at = close + 1
            elif token == "[":
                at = self.match(at, "[", "]") + 1
            elif token == "<" and top and top[-1][0] != "operator" and (top[-1][0] == "template" or re.match(r"[A-Za-z_]", top[-1][0])):
                close = self.match_angle(at)
                if top[-1][0] == "template":
                    top.pop()
                at = at + 1 if close is None else close + 1
            elif token == "{":
                before = self.tokens[at - 1][0]
                if initializers and (re.match(r"[A-Za-z_]", before) or before == ">") and before != "try":
                    at = self.match(at, "{", "}") + 1  # member_{value}
                    continue
                return at, groups, top
            else:
                if token == ":" and groups and not initializers:
                    initializers = True
                if not initializers:
                    top.append((token, at))
                at += 1
        return at, groups, top

    def declaration(self, at, class_name, public):
        start = at
        end, groups, top = self.head(at)
        words = [t for t, _ in top]
        if end >= len(self.tokens):
            return end
        terminator = self.tokens[end][0]
        if terminator == "}":
            return end
        equals = next((i for i, (t, index) in enumerate(top) if t == "=" and not (i and words[i - 1] == "operator")
                       and not (i > 1 and words[i - 2] == "operator")), None)
        first_group = next((i for i, t in enumerate(words) if t == "(...)"), None)
        if terminator == "{":
            close = self.match(end, "{", "}")
            kinds = [w for w in words if w in ("class", "struct", "union", "enum", "namespace")]
            if "namespace" in words or (words[:1] == ["extern"] and first_group is None):
                return self.scope(end + 1, None, True) + 1
            if equals is not None and (first_group is None or equals < first_group):
                return self.data(start, words, public) if class_name is not None else close + 1
            if kinds and kinds[0] == "enum":
                return close + 1
            if kinds and first_group is None:
                at = next((i + 1 for i, w in enumerate(words[:-1]) if w in ("class", "struct", "union")), None)
                name = "" if at is None else words[at]
                return self.class_scope(end + 1, Class(name, kinds[0], self.tokens[start][1])) + 1
            if first_group is not None:
                self.add(top, groups, start, close, class_name, public, True)
            elif class_name is not None:
                return self.data(start, words, public)
            return close + 1
        is_function = first_group is not None and (equals is None or equals > first_group) and self.tokens[groups[0][0] + 1][0] != "*"
        if is_function and words[0] not in NOT_DECLARATIONS:
            self.add(top, groups, start, end, class_name, public, False)
        elif class_name is not None and not is_function:
            return self.data(start, words, public)
        return end + 1

    def class_scope(self, at, found):
        self.classes.append(found)
        self.open_classes.append(found)
        end = self.scope(at, found.name, found.kind != "class")
        self.open_classes.pop()
        return end

    def data(self, start, words, public):
        """Reads the data members of one declaration, which may name several; returns the index after its semicolon."""
        at, names, is_value = start, [None], False
        while at < len(self.tokens) and self.tokens[at][0] not in ";}":
            token = self.tokens[at][0]
            close = self.match_angle(at) if token == "<" and not is_value else None
            if token in "([{":
                if self.tokens[at + 1][0] == "*" and not is_value:
                    names[-1] = self.tokens[at + 2][0]   # a pointer to a function
                is_value = True
                close = self.match(at, token, {"(": ")", "[": "]", "{": "}"}[token])
            elif token == ",":
                names.append(None)
                is_value = False
            elif token in "=:":
                is_value = True
            elif not is_value and re.match(r"[A-Za-z_]", token):
                names[-1] = token
            at = at + 1 if close is None else close + 1
        if not NO_DATA & set(words):
            kind = " ".join(token for token, _ in self.tokens[start:at])
            self.open_classes[-1].members += [(kind, name, public) for name in names if name]
        return at if at < len(self.tokens) and self.tokens[at][0] == "}" else at + 1

    def add(self, top, groups, start, end, class_name, public, has_body):
        words = [t for t, _ in top]
        if "operator" in words:
            at = words.index("operator")
            group = next((i for i in range(at + 1, len(words)) if words[i] == "(...)"), None)
            if group is None:
                return
            name = "operator" + "".join(words[at + 1:group])
        else:
            group = words.index("(...)")
            if group == 0:
                return
            name = words[group - 1]
        qualified = group > 2 and words[group - 2] == "::"
        owner = words[group - 3] if qualified else class_name
        destructor = group > 1 and words[group - 2] == "~"
        constructor = name == owner and not destructor
        if not has_body and not constructor and not destructor and "operator" not in words and group < 2:
            return  # a macro
        if class_name is not None and {"virtual", "override", "final"} & set(words):
            self.open_classes[-1].is_polymorphic = True
            if "virtual" in words and not destructor:
                self.open_classes[-1].virtuals.append(name)
        opening, closing = groups[words[:group].count("(...)")]
        parameters = self.parameters(opening, closing)
        first_line = self.tokens[top[0][1]][1]
        self.functions.append(Function(("~" if destructor else "") + name, first_line, self.tokens[end][1] if has_body else first_line,
                                       parameters, has_body, public, constructor))

    def parameters(self, opening, closing):
        out, words, at = [], [], opening + 1
        while at < closing:
            token = self.tokens[at][0]
            close = None
            if token in "([{":
                close = self.match(at, token, {"(": ")", "[": "]", "{": "}"}[token])
            elif token == "<":
                close = self.match_angle(at)
            if close is not None:
                words += [t for t, _ in self.tokens[at:close + 1]]
                at = close + 1
                continue
            if token == ",":
                out.append(" ".join(words))
                words = []
            else:
                words.append(token)
            at += 1
        if words:
            out.append(" ".join(words))
        return [] if out == ["void"] else out


def read(text):
    """The functions and classes of a source file, in order, as a Reader holds them."""
    plain = without_literals(text)
    for branches in ("all", "first"):
        reader = Reader(tokens_of(without_directives(plain, branches)))
        end = reader.scope(0, None, True)
        if reader.balanced and end >= len(reader.tokens):
            break
    return reader


def functions_of(text):
    return read(text).functions


def classes_of(text):
    return read(text).classes


def includes_of(text):
    """(line, file) of each include."""
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in INCLUDE.finditer(text)]
