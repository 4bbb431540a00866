"""Known SSRF tricks in addresses, hosts and URLs, and addresses that must be allowed.

Collected from the IANA registries, RFC 6890 and its successors, and published attacks on URL
parsers and resolvers; each line is a test case.
"""

# Addresses as a resolver gives them, or as they stand in a URL.
REFUSED_ADDRESSES = [
    # Loopback, this network, broadcast.
    "127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "127.255.255.255", "0.0.0.0",
    "0.0.0.1", "0.255.255.255", "255.255.255.255", "::", "::1",
    # Private networks and those of carriers.
    "10.0.0.0", "10.0.0.1", "10.255.255.255", "172.16.0.0", "172.16.0.1", "172.20.10.1",
    "172.31.255.255", "192.168.0.0", "192.168.0.1", "192.168.255.255", "100.64.0.0",
    "100.64.0.1", "100.127.255.255", "fc00::", "fc00::1", "fd00::1", "fd12:3456:789a::1",
    "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    # Metadata and platform services of clouds.
    "169.254.169.254", "169.254.170.2", "169.254.169.253", "169.254.0.1", "169.254.255.255",
    "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254",
    "fe80::a9fe:a9fe",
    # Protocol assignments, anycast services, tests and documentation.
    "192.0.0.0", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.255",
    "192.0.2.0", "192.0.2.1", "192.0.2.255", "192.31.196.1", "192.52.193.1", "192.88.99.0",
    "192.88.99.1", "192.88.99.255", "192.175.48.1", "198.18.0.0", "198.18.0.1",
    "198.19.255.255", "198.51.100.0", "198.51.100.1", "198.51.100.255", "203.0.113.0",
    "203.0.113.1", "203.0.113.255",
    # Multicast and reserved.
    "224.0.0.0", "224.0.0.1", "224.0.0.251", "232.1.1.1", "239.255.255.250", "239.255.255.255",
    "240.0.0.0", "240.0.0.1", "250.1.2.3", "255.255.255.254", "ff00::", "ff01::1", "ff02::1",
    "ff02::fb", "ff05::2", "ff0e::1",
    # IPv6 link-local, site-local, with zones, and outside of what has been given out.
    "fe80::", "fe80::1", "fe80::1%eth0", "fe80::1%1", "2606:4700::1111%eth0",
    "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::1", "feff::1", "100::", "100::1",
    "100:0:0:1::1", "5f00::1", "200::1", "400::1", "4000::1", "6000::1", "8000::1", "a000::1",
    "c000::1", "e000::1", "f000::1", "f800::1", "fe00::1", "1::", "1fff::1",
    "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    # Special parts of IPv6's global unicast.
    "2001::1", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1", "2001:3::1",
    "2001:4:112::1", "2001:5::1", "2001:10::1", "2001:1f::1", "2001:20::1", "2001:2f::1",
    "2001:30::1", "2001:1ff:ffff::1", "2001:db8::", "2001:db8::1", "2001:db8:ffff::1",
    "2620:4f:8000::1", "3ffe::1", "3fff::", "3fff::1",
    "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
    # IPv4 inside IPv6: mapped, compatible, translated.
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe", "::ffff:192.168.1.1", "::ffff:172.16.0.1", "::ffff:100.64.0.1",
    "::ffff:0.0.0.0", "::ffff:255.255.255.255", "::ffff:224.0.0.1", "0:0:0:0:0:ffff:7f00:0001",
    "::127.0.0.1", "::7f00:1", "::10.0.0.1", "::169.254.169.254", "::8.8.8.8", "::2",
    "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
    # NAT64, 6to4 and Teredo: gateways to somewhere else, even with a public address inside.
    "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8",
    "64:ff9b:1::1", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:ffff::1", "64:ff9b:2::1",
    "2002:7f00:1::", "2002:7f00:0001::1", "2002:a00:1::1", "2002:a9fe:a9fe::1",
    "2002:c0a8:101::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:0:808:808::80ff:fffe", "2001::ffff:ffff:80ff:fffe",
    # Not addresses at all, or not in their one spelling; a resolver gives none of these.
    "", " ", "localhost", "127.1", "127.0.0.01", "0177.0.0.1", "0x7f.0.0.1", "2130706433",
    "127.0.0.1 ", "127.0.0.1\n", "127.0.0.1/8", "1.2.3.4.5", "256.1.1.1", ":::1", "[::1]",
]  # fmt: skip

ALLOWED_ADDRESSES = [
    "1.1.1.1", "8.8.8.8", "9.9.9.9", "93.184.215.14", "104.16.0.1", "151.101.1.69",
    "185.199.108.153", "200.1.2.3", "223.255.255.255",
    # Next to what is refused, on either side.
    "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0",
    "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
    "192.31.195.255", "192.31.197.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0",
    "203.0.112.255", "203.0.114.0",
    "2000::1", "2001:200::", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::1",
    "2003::1", "2400:cb00::1", "2600::1", "2606:4700:4700::1111", "2620:fe::fe",
    "2620:4f:7fff::1", "2620:4f:8001::1", "2a00:1450:4001::1", "3ffd::1",
    "3fff:1000::1",
    # The same host as without the prefix: the kernel opens an IPv4 connection.
    "::ffff:8.8.8.8", "::ffff:808:808",
]  # fmt: skip

# Hosts of a URL that reach loopback in one program or another. Names among them resolve to
# loopback in the test. None may lead to a connection.
REFUSED_HOSTS = [
    # An address in its usual spelling.
    "127.0.0.1", "127.0.0.1.", "127.8.9.10", "0.0.0.0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    # Decimal, octal, hexadecimal, short and mixed forms that inet_aton takes.
    "2130706433", "2130706433.", "017700000001", "0x7f000001", "0X7F000001", "0x7f000001.",
    "127.1", "127.0.1", "0177.0.0.1", "0177.1", "00177.0.0.1", "127.0.0.01", "127.0.0.001",
    "0x7f.0.0.1", "0x7f.1", "0x7F.0X0.0x0.0x1", "0x7f.0.1", "0177.0x0.0.1", "127.0.0.0x1",
    "127.0x1", "0", "0.", "0x", "0x0", "00", "1", "127", "127.", "4294967295", "4294967297",
    "340282366920938463463374607431768211455", "0.0", "0.0.0", "127.0.0.1.0x1", "a.b.1", "a.0x",
    "example.127", "127.0.0.256", "127.0.0.1e0", "127.0.0.-1", "127.0.0.+1",
    # IPv6 with IPv4 inside, zones, and brackets where they do not belong.
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:7f00:0001]", "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
    "[2001::80ff:fffe]", "[::1%lo]", "[::1%25lo]", "[fe80::1%25eth0]", "[v1.fe80::1]",
    "[127.0.0.1]", "[::1", "::1]", "::1", "[]", "[::1].", "[::1]x", "[localhost]", "[[::1]]",
    # Names of loopback and internal services; in the test all names resolve to loopback.
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "foo.localhost", "localhost.localdomain",
    "ip6-localhost", "ip6-loopback", "localtest.me", "lvh.me", "127.0.0.1.nip.io",
    "7f000001.nip.io", "127-0-0-1.sslip.io", "metadata.google.internal", "metadata",
    "instance-data", "kubernetes.default.svc", "host.docker.internal", "rebind.network",
    "xn--bcher-kva.example", "_service.example",
    # Not valid names.
    "", ".", "..", ".localhost", "localhost..", "a..b", "-a.example", "a-.example",
    f"{'a' * 64}.example", ".".join(["a" * 63] * 4) + ".example",
    # Letters that turn into others: full width, circled, dots of other scripts, soft hyphen.
    "１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "ⓛocalhost",  # noqa: RUF001
    "ｌｏｃａｌｈｏｓｔ", "local\u00adhost", "localhost\u200b", "bücher.example", "ß.example",  # noqa: RUF001
    "\u2488.example",
    # Percent-encoding, credentials, and other ways to end the host early.
    "127%2e0%2e0%2e1", "%31%32%37.0.0.1", "localhost%00", "localhost%00.example", "localhost%0a",
    "localhost%23", "user@127.0.0.1", "user:secret@127.0.0.1", "example.com@127.0.0.1",
    "example.com:80@127.0.0.1", "@127.0.0.1", "127.0.0.1@", "example.com%40127.0.0.1",
    "127.0.0.1\\@example.com", "example.com\\@127.0.0.1", "127.0.0.1\\.example.com", "\\127.0.0.1",
    # White space and control characters, which some programs strip and others do not.
    " 127.0.0.1", "127.0.0.1 ", "127.0.0.1\t", "127.0.0.1\n", "127.0.0.1\r\n", "127.0.0.1\x00",
    "\t127.0.0.1", "local\thost", "local\nhost", "127.0.0.1\r\nX-Injected: 1", "127.0.0.1\x0b",
    "127.0.0.1\x7f", "127.0.0.1,example.com", "127.0.0.1;example.com", "127.0.0.1&example.com",
    "127.0.0.1'", '127.0.0.1"', "127.0.0.1`", "127.0.0.1<", "{127.0.0.1}", "127.0.0.1|",
    "127.0.0.1^",
    "$(hostname)", "*", "~", "a!b", "a=b", "a+b", "a,b",
]  # fmt: skip

# Whole URLs, where it is not the host alone that is wrong.
REFUSED_URLS = [
    "", "x", "example.com", "//example.com/", "/hook", "http", "http:", "http:/", "http://",
    "https://", "http:///", "http:///hook", "http://?q", "http://#f", "http:example.com",
    "http:/example.com", "http:\\\\example.com", "http:/\\example.com", "https:example.com/hook",
    " http://example.com", "http ://example.com", "ht\ntp://example.com", "\x00http://example.com",
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com:6379/_INFO",
    "dict://example.com:11211/stat", "ldap://example.com/", "ws://example.com/",
    "wss://example.com/", "data:text/plain,hello", "javascript:alert(1)", "jar:http://example.com!/",
    "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "tel:+15550100",
    "http://example.com:", "http://example.com:/", "http://example.com:0/",
    "http://example.com:65536/", "http://example.com:99999/", "http://example.com:080/",
    "http://example.com:-1/", "http://example.com:+80/", "http://example.com:8o/",
    "http://example.com: 80/", "http://example.com:80:80/", "http://example.com:8_0/",
    "http://example.com:１/", "http://example.com:80@127.0.0.1/", "http://[::1]:x/",  # noqa: RUF001
    "http://example.com/a b", "http://example.com/a\tb", "http://example.com/a\r\nHost: internal",
    "http://example.com/\x00", "http://example.com/\x7f", "http://example.com/é",
    "http://example.com/a\\b", "http://example.com/%", "http://example.com/%2", "http://example.com/%zz",
    'http://example.com/"', "http://example.com/<x>", "http://example.com/{x}", "http://example.com/a|b",
    "http://example.com/?q=a b", "http://example.com/?q=\n", "http://example.com/#\r\n",
    "http://example.com/" + "a" * 2_048,
]  # fmt: skip
