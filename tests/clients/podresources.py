#!/usr/bin/env python3
"""Asks a podresources socket with gRPC's own library, as a consumer does, and prints the answers.

podresources.py SOCKET NAMESPACE POD [AUTHORITY]

Without AUTHORITY the library chooses it: the path of the socket. Needs no generated code: messages are read by their
field numbers.
"""

import sys

import grpc


def varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 != 2:
            raise ValueError(f"wire type {key & 7}")
        length, at = varint(data, at)
        yield key >> 3, data[at : at + length]
        at += length


def text(data, number):
    return next((value.decode() for key, value in fields(data) if key == number), "")


def cpus(data, number):
    found = []
    for key, value in fields(data):
        at = 0
        while key == number and at < len(value):
            cpu, at = varint(value, at)
            found.append(str(cpu))
    return ",".join(found) or "none"


def pods(data):
    lines = []
    for _, pod in fields(data):
        for key, container in fields(pod):
            if key == 3:
                name = "/".join([text(pod, 2), text(pod, 1), text(container, 1)])
                lines.append(f"{name} {cpus(container, 3)}")
    return "; ".join(lines)


def request(name, namespace):
    encoded = [(1, name.encode()), (2, namespace.encode())]
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in encoded)


def main(socket, namespace, pod, authority=None):
    options = [("grpc.default_authority", authority)] if authority else []
    with grpc.insecure_channel(f"unix://{socket}", options=options) as channel:

        def call(method, message):
            return channel.unary_unary(f"/v1.PodResourcesLister/{method}")(message, timeout=5)

        print("List:", pods(call("List", b"")))
        print("Get:", pods(call("Get", request(pod, namespace))))
        print("GetAllocatableResources:", cpus(call("GetAllocatableResources", b""), 2))
        try:
            call("Get", request("another", namespace))
        except grpc.RpcError as error:
            print("Get of another pod:", error.code().name, error.details())


main(*sys.argv[1:])
