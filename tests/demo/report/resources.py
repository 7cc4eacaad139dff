"""What an HTML page loads, for tests of pages."""

from html.parser import HTMLParser


class Resources(HTMLParser):
    """Collects the addresses that a page loads, and checks that its tags are closed."""

    def __init__(self):
        super().__init__()
        self.loads = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
