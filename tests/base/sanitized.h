// Tells whether a sanitizer watches the test, or an emulator runs it. Either makes products many
// times slower, so a test of many sizes takes fewer of them there: an error of memory, or of an
// instruction, shows in a few.
#pragma once

namespace plait {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsAddressSanitized = true;
#else
inline constexpr bool kIsAddressSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

// CMake says so where it compiles for another processor.
#if defined(PLAIT_EMULATED)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = kIsSanitized;
#endif

}  // namespace plait
