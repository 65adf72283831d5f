// Which kernel this process runs on, and which part of it it sees.
#pragma once

#include <string>

namespace plait::base {

// The same text in all processes of one running kernel that see the same host, and in no other: 32
// hex digits, made of the boot's id, of /etc/machine-id and of the host's name. Virtual machines
// that go on from one snapshot share the boot's id, and mostly have one of the others changed.
// Containers of one kernel that differ in these count as different hosts. Empty where the boot's id
// can't be told.
std::string host_id();

// What it is made of.
std::string id_of_host(const std::string& boot, const std::string& machine,
                       const std::string& name);

// The same text in all processes of one namespace of this kind ("net", "pid"); empty where it can't
// be told.
std::string namespace_id(const char* kind);

}  // namespace plait::base
