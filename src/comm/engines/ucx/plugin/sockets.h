// The TCP connections of a UCX worker. UCX doesn't tell them, but the kernel names what an epoll
// descriptor watches, and UCX watches its connections by one that the worker's descriptor watches.
#pragma once

namespace plait::comm::ucx {

// Nothing more is sent through these connections; a send fails at once. Where UCX closes a
// connection, it sends a last message, and tries again and again while the kernel has no room for
// it. There is none for hours if the peer is stopped, or if the cable is cut.
void end_sending(int worker_descriptor) noexcept;

}  // namespace plait::comm::ucx
