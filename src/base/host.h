// Identifies the kernel that this process runs on, and the namespaces that it sees.
#pragma once

#include <string>

namespace plait::base {

// Identifies a host. All processes of one running kernel that see the same host get the same text,
// and no other process gets it. It is 32 hex digits made from the kernel's boot id, /etc/machine-id
// and the host name. Virtual machines started from one snapshot share the boot id, but usually
// differ in one of the others. Containers of one kernel that differ in these count as different
// hosts. Empty where the boot id is unknown.
std::string host_id();

// Identifies the running kernel, which containers share. Empty where it is unknown.
std::string boot_id();

// The pure part of host_id().
std::string id_of_host(const std::string& boot, const std::string& machine,
                       const std::string& name);

// Identifies a namespace of this kind ("net", "pid"): equal in all processes of that namespace.
// Empty where it is unknown.
std::string namespace_id(const char* kind);

}  // namespace plait::base
