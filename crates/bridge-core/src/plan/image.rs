//! Which images mean our own worker.

use super::kind::image_parts;

/// The images of the reference implementation, which the shipped install replaces by our worker.
pub const REFERENCE_IMAGES: [&str; 5] =
    ["*/slurm-pod:*", "*/lsf-pod:*", "*/ray-pod:*", "*/quantum-pod:*", "*bridge-operator-*-pod:*"];

/// A pattern of `--replace-image`: `*` stands for any text, `?` for one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePattern(String);

impl ImagePattern {
    /// A pattern as it is written.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// The pattern as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern means this image. Patterns end in a tag and begin with a registry; an image that leaves
    /// them out means `docker.io/library/…` and `:latest`, and one with a digest is matched as if it were the tag.
    #[must_use]
    pub fn matches(&self, image: &str) -> bool {
        let (name, version) = image_parts(image);
        let tagged = format!("{name}:{}", version.unwrap_or("latest"));
        let full = format!("docker.io/library/{tagged}");
        let candidates = [image, tagged.as_str(), if name.contains('/') { image } else { full.as_str() }];
        candidates.into_iter().any(|candidate| glob(self.0.as_bytes(), candidate.as_bytes()))
    }
}

/// How `spec.image` is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRules {
    /// The image of our worker.
    pub worker: Option<String>,
    /// Images that are replaced by our worker.
    pub replace: Vec<ImagePattern>,
    /// What any other image means.
    pub others: OtherImages,
}

/// What an image means that is neither our worker's nor replaced by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherImages {
    /// A pod of that image runs the job.
    Foreign,
    /// Nothing: there are no pods here.
    Unused,
}

impl ImageRules {
    /// For an operator with this worker image and these patterns of `--replace-image`.
    pub fn cluster(worker: impl Into<String>, replace: impl IntoIterator<Item = ImagePattern>) -> Self {
        Self { worker: Some(worker.into()), replace: replace.into_iter().collect(), others: OtherImages::Foreign }
    }

    /// Without a cluster: an image only helps to tell the manager.
    #[must_use]
    pub fn standalone() -> Self {
        Self {
            worker: None,
            replace: REFERENCE_IMAGES.into_iter().map(ImagePattern::new).collect(),
            others: OtherImages::Unused,
        }
    }

    pub(super) fn role_of(&self, image: Option<&str>) -> ImageRole {
        let Some(image) = image.filter(|image| Some(*image) != self.worker.as_deref()) else {
            return ImageRole::Ours;
        };
        if let Some(pattern) = self.replace.iter().find(|pattern| pattern.matches(image)) {
            return ImageRole::Replaced { pattern: pattern.as_str().to_owned() };
        }
        match self.others {
            OtherImages::Foreign => ImageRole::Foreign,
            OtherImages::Unused => ImageRole::Unused,
        }
    }
}

/// What an image is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageRole {
    Ours,
    Replaced { pattern: String },
    Foreign,
    Unused,
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last star was, and how far the text had been read: on a mismatch the star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                read += 1;
            }
            Some(byte) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    read = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
