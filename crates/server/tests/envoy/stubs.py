"""Compares messages and definitions with Envoy's own, which the package xds-protos contains.

    messages       reads lines of JSON {kind, fields, bytes}. For each, prints an object: the bytes that the stubs write for
                   these fields (built) and for what they read (read), whether both are the same message (equal), and the
                   numbers of fields that they do not know (unknown).
    generate N     prints N messages as JSON {kind, bytes}.
    definitions    reads lines of JSON {file}, each a file descriptor. Prints a list of differences from the stubs.
    program PATH   the same, compared with the definitions inside Envoy's program.

Bytes are written as hexadecimal digits.
"""

import json
import random
import sys

from envoy.config.core.v3 import base_pb2
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2
from envoy.type.v3 import ratelimit_unit_pb2
from google.protobuf import descriptor_pb2, json_format, unknown_fields

KINDS = {"request": rls_pb2.RateLimitRequest, "response": rls_pb2.RateLimitResponse}


def serialised(message):
    return message.SerializeToString(deterministic=True).hex()


def unknown(message):
    """The numbers of all unknown fields, of nested messages too."""
    found = [field.field_number for field in unknown_fields.UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for nested in value if field.is_repeated else [value]:
                found += unknown(nested)
    return found


def messages():
    for line in sys.stdin:
        given = json.loads(line)
        kind = KINDS[given["kind"]]
        built = json_format.ParseDict(given["fields"], kind())
        read = kind.FromString(bytes.fromhex(given["bytes"]))
        answer = {"built": serialised(built), "read": serialised(read), "equal": built == read}
        print(json.dumps({**answer, "unknown": unknown(read)}))


def generate(count):
    draw = random.Random(19)

    def text():
        return "".join(draw.choice("ab:/ é\u20ac\U0001f600") for _ in range(draw.randrange(6)))

    def number(bits):
        return draw.choice([0, 1, 127, 128, 2**bits - 1, draw.randrange(2**bits)])

    def request():
        message = rls_pb2.RateLimitRequest(domain=text(), hits_addend=number(32))
        for _ in range(draw.randrange(4)):
            descriptor = message.descriptors.add()
            for _ in range(draw.randrange(4)):
                descriptor.entries.add(key=text(), value=text())
            if draw.random() < 0.5:
                descriptor.limit.requests_per_unit = number(32)
                descriptor.limit.unit = draw.randrange(7)
            if draw.random() < 0.5:
                # Set even if it is 0.
                descriptor.hits_addend.SetInParent()
                descriptor.hits_addend.value = number(64)
        return message

    def response():
        message = rls_pb2.RateLimitResponse(overall_code=draw.randrange(3))
        for _ in range(draw.randrange(4)):
            status = message.statuses.add(code=draw.randrange(3), limit_remaining=number(32))
            if draw.random() < 0.5:
                status.current_limit.name = text()
                status.current_limit.requests_per_unit = number(32)
                status.current_limit.unit = draw.randrange(8)
            if draw.random() < 0.5:
                status.duration_until_reset.seconds = number(38)
                status.duration_until_reset.nanos = draw.randrange(10**9)
        for _ in range(draw.randrange(4)):
            message.response_headers_to_add.add(key=text(), value=text())
        if draw.random() < 0.5:
            # One entry with a key: the order of entries is not defined, and an empty key may be left out.
            value = draw.choice([text(), draw.random(), True, None, [1, text()], {"k" + text(): text()}])
            message.dynamic_metadata.update({"k" + text(): value})
        return message

    for _ in range(count):
        for kind, make in (("request", request), ("response", response)):
            print(json.dumps({"kind": kind, "bytes": serialised(make())}))


def definitions(theirs):
    """Prints what our definitions have that these lack or have in another form."""
    known = {}
    for file in theirs:
        collect(file.package, file, known)
    differences = []
    for line in sys.stdin:
        file = descriptor_pb2.FileDescriptorProto.FromString(bytes.fromhex(json.loads(line)["file"]))
        ours = {}
        collect(file.package, file, ours)
        for name, definition in ours.items():
            if known.get(name) != definition:
                differences.append({"name": name, "ours": definition, "theirs": known.get(name)})
    print(json.dumps(differences))


def collect(scope, parent, found):
    """Collects fields, enum values and methods by their full names."""
    is_file = isinstance(parent, descriptor_pb2.FileDescriptorProto)
    for message in parent.message_type if is_file else parent.nested_type:
        name = f"{scope}.{message.name}"
        for field in message.field:
            of = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
            found[f"{name}.{field.name}"] = [field.number, field.label, field.type, field.type_name, of]
        collect(name, message, found)
    for enum in parent.enum_type:
        # All values: a value that is missing would be read as an unknown one.
        found[f"{scope}.{enum.name}"] = sorted([value.number, value.name] for value in enum.value)
    for service in parent.service if is_file else []:
        for method in service.method:
            streams = [method.client_streaming, method.server_streaming]
            found[f"{scope}.{service.name}.{method.name}"] = [method.input_type, method.output_type, streams]


def of_stubs():
    for module in (rls_pb2, ratelimit_pb2, ratelimit_unit_pb2, base_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        yield file


def of_program(path):
    """The definitions that the program contains for its own use, as the bytes of file descriptors."""
    with open(path, "rb") as program:
        content = program.read()
    for module in (rls_pb2, ratelimit_pb2, ratelimit_unit_pb2, base_pb2):
        name = module.DESCRIPTOR.name.encode()
        # The first field of a file descriptor is its name.
        start = content.find(b"\n" + bytes([len(name)]) + name)
        while start >= 0:
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(content[start : end_of(content, start)])
            except Exception:
                file = None
            if file and file.package:
                yield file
                break
            start = content.find(name, start + len(name)) - 2
        else:
            sys.exit(f"{path} does not contain {name.decode()}")


def end_of(content, start):
    """The end of the fields of a file descriptor that begins here."""
    at = start
    while True:
        tag, after = varint(content, at)
        number, form = tag >> 3, tag & 7
        if not 1 <= number <= 14 or (number == 1 and at != start) or form not in (0, 2):
            return at
        value, after = varint(content, after)
        at = after + value if form == 2 else after


def varint(content, at):
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


match sys.argv[1:]:
    case ["messages"]:
        messages()
    case ["generate", count]:
        generate(int(count))
    case ["definitions"]:
        definitions(of_stubs())
    case ["program", path]:
        definitions(of_program(path))
    case _:
        sys.exit(__doc__)
