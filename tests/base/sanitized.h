// Tells whether a sanitizer watches the test. It makes products many times slower, so a test of
// many sizes takes fewer of them there: an error of memory shows in a few.
#pragma once

namespace plait {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

}  // namespace plait
